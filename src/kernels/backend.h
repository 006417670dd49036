// A backend: a device and the row of the kernel table that works on it. Launching is queueing the arguments on the stream.
//   Backend backend({.kind = BackendKind::cpu, .threads = 2}); backend.launch(&KernelTable::add, Add{y, a, b});
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "kernels/cuda/launcher.h"
#include "kernels/table.h"
#include "tensor/device.h"

namespace lockstep {

struct BackendOptions {
  BackendKind kind = BackendKind::cpu;
  std::optional<InstructionSet> isa = std::nullopt;  // none: the widest this machine has
  int threads = 0;                    // 0: all processors
};

class Backend {
 public:
  explicit Backend(const BackendOptions& options);  // throws unsupported when this machine lacks the instruction set
  ~Backend();
  Device& device() { return device_; }
  Stream& stream() { return device_.stream(); }
  InstructionSet isa() const { return isa_; }

  template <class Arguments>
  void launch(void (*KernelTable::*kernel)(const Arguments&, ThreadPool&), const Arguments& arguments) {
    if (device_.counting()) return;
    if (cuda_) return device_.stream().enqueue([this, arguments] { cuda_->launch(arguments); });
    if (!device_.stream().deferred()) return (table_.*kernel)(arguments, device_.threads());
    device_.stream().enqueue([this, kernel, arguments] { (table_.*kernel)(arguments, device_.threads()); });
  }

 private:
  InstructionSet isa_;
  const KernelTable& table_;
  Device device_;
  std::unique_ptr<CudaLauncher> cuda_;  // instead of the table, where the device is a GPU or plays one
};

std::string_view instruction_set_name(InstructionSet isa);
InstructionSet instruction_set_by_name(std::string_view name);
bool machine_has(InstructionSet isa);
InstructionSet widest_instruction_set();

}  // namespace lockstep
