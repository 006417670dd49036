#include "kernels/instruction_set.h"

#include "base/choice.h"

namespace lockstep {

std::string_view instruction_set_name(InstructionSet isa) {
  constexpr std::string_view names[] = {"scalar", "avx2", "avx512"};
  return names[static_cast<int>(isa)];
}

InstructionSet instruction_set_by_name(std::string_view name) {
  for (InstructionSet isa : {InstructionSet::scalar, InstructionSet::avx2, InstructionSet::avx512})
    if (instruction_set_name(isa) == name) return isa;
  fail_choice("instruction set", name, {"scalar", "avx2", "avx512"});
}

bool machine_has(InstructionSet isa) {
  const bool base = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (isa != InstructionSet::avx512) return base;
  return base && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vl");
}

InstructionSet widest_instruction_set() { return machine_has(InstructionSet::avx512) ? InstructionSet::avx512 : InstructionSet::avx2; }

}  // namespace lockstep
