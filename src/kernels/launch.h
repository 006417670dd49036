// Launches a kernel: queues its arguments on the backend's stream.
//   backend.launch(&KernelTable::add, Add{y, a, b});
#pragma once
#include "kernels/backend.h"
#include "kernels/cuda/launcher.h"
#include "kernels/table.h"

namespace lockstep {

template <class Arguments>
void Backend::launch(void (*KernelTable::*kernel)(const Arguments&, ThreadPool&), const Arguments& arguments) {
  if (device_.counting()) return;
  if (cuda_) return device_.stream().enqueue([this, arguments] { cuda_->launch(arguments); });
  if (!device_.stream().deferred()) {
    if (pause_point_) pause_point_->pause();
    return (table_.*kernel)(arguments, device_.threads());
  }
  device_.stream().enqueue([this, kernel, arguments] { (table_.*kernel)(arguments, device_.threads()); });
}

}  // namespace lockstep
