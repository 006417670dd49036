// A backend: a device and the row of the kernel table that works on it. Whoever holds one need not know the kernels; whoever launches one
// includes kernels/launch.h.
//   Backend backend({.kind = BackendKind::cpu, .threads = 2});
#pragma once
#include <memory>
#include <optional>

#include "kernels/instruction_set.h"
#include "tensor/device.h"

namespace lockstep {

struct KernelTable;
class CudaLauncher;

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

  // Queues the arguments of one kernel on the stream; the definition is in kernels/launch.h.
  template <class Arguments>
  void launch(void (*KernelTable::*kernel)(const Arguments&, ThreadPool&), const Arguments& arguments);

 private:
  InstructionSet isa_;
  const KernelTable& table_;
  Device device_;
  std::unique_ptr<CudaLauncher> cuda_;  // instead of the table, where the device is a GPU or plays one
};

}  // namespace lockstep
