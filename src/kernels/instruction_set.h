// The instruction sets that kernels are compiled for, and which of them this machine has.
//   const InstructionSet isa = widest_instruction_set(); instruction_set_name(isa); machine_has(InstructionSet::avx512);
#pragma once
#include <string_view>

namespace lockstep {

enum class InstructionSet { scalar, avx2, avx512 };

std::string_view instruction_set_name(InstructionSet isa);
InstructionSet instruction_set_by_name(std::string_view name);
bool machine_has(InstructionSet isa);
InstructionSet widest_instruction_set();

}  // namespace lockstep
