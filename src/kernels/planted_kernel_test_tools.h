// Replaces a kernel in the table of this machine's instruction sets by a wrong one, for as long as it lives. Tests only; no stream may have work
// under way when it begins or ends. The wrong kernel can call the right one.
//   PlantedKernel<AttentionForward> planted(&KernelTable::attention_forward, [](const AttentionForward& op, ThreadPool& pool) {
//     PlantedKernel<AttentionForward>::right(op, pool); });
#pragma once
#include "kernels/launch.h"

namespace lockstep {

template <class Arguments>
class PlantedKernel {
 public:
  using Kernel = void (*)(const Arguments&, ThreadPool&);

  PlantedKernel(Kernel KernelTable::*place, Kernel wrong) : place_(place) {
    right_ = row(widest_instruction_set()).*place;
    for (std::size_t i = 0; i < 3; ++i) {
      Kernel& at = row(static_cast<InstructionSet>(i)).*place;
      before_[i] = at;
      at = wrong;
    }
  }
  ~PlantedKernel() {
    for (std::size_t i = 0; i < 3; ++i) row(static_cast<InstructionSet>(i)).*place_ = before_[i];
  }
  PlantedKernel(const PlantedKernel&) = delete;
  PlantedKernel& operator=(const PlantedKernel&) = delete;

  // The right kernel, of the widest instruction set: all have the same bits.
  static void right(const Arguments& op, ThreadPool& pool) { right_(op, pool); }

 private:
  static KernelTable& row(InstructionSet isa) { return kernel_table_to_plant_in(isa, false); }
  static inline Kernel right_ = nullptr;
  Kernel KernelTable::*place_;
  Kernel before_[3];
};

}  // namespace lockstep
