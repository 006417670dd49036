// A backend: a device and the row of the kernel table that works on it.
//   Backend backend({.kind = BackendKind::cpu, .threads = 2});
// Code that only holds a backend need not see the kernels; code that launches one includes kernels/launch.h.
#pragma once
#include <algorithm>
#include <memory>
#include <optional>

#include "base/pause_point.h"
#include "kernels/instruction_set.h"
#include "tensor/device.h"

namespace lockstep {

struct KernelTable;
class CudaLauncher;

struct BackendOptions {
  BackendKind kind = BackendKind::cpu;
  std::optional<InstructionSet> isa = std::nullopt;  // none: the widest this machine has
  int threads = 0;                                   // 0: all processors
};

class Backend {
 public:
  explicit Backend(const BackendOptions& options);  // throws unsupported when this machine lacks the instruction set
  ~Backend();
  Device& device() { return device_; }
  Stream& stream() { return device_.stream(); }
  InstructionSet isa() const { return isa_; }
  // What long kernels call between their parts (base/pause_point.h); null: nothing. A device that queues its work never calls it.
  void set_pause_point(std::shared_ptr<PausePoint> point) { pause_point_ = std::move(point); }
  // How many of `count` rows (or panels) of `work` multiply-adds each one kernel should take, so that it does not delay the pause point: at least
  // `least`, at most all; all without a pause point.
  std::int64_t rows_a_kernel(std::int64_t count, std::int64_t work, std::int64_t least) const {
    const std::int64_t most = pause_point_ ? pause_point_->longest_kernel() : 0;
    return most > 0 ? std::clamp(most / std::max<std::int64_t>(1, work), std::min(least, count), count) : count;
  }

  // Queues the arguments of one kernel on the stream; the definition is in kernels/launch.h.
  template <class Arguments>
  void launch(void (*KernelTable::*kernel)(const Arguments&, ThreadPool&), const Arguments& arguments);

 private:
  InstructionSet isa_;
  const KernelTable& table_;
  Device device_;
  std::shared_ptr<PausePoint> pause_point_;
  std::unique_ptr<CudaLauncher> cuda_;  // instead of the table, where the device is a GPU or plays one
};

}  // namespace lockstep
