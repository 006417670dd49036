#include "kernels/backend.h"

#include "base/error.h"

namespace lockstep {

namespace {
InstructionSet checked(std::optional<InstructionSet> isa) {
  if (!isa) return widest_instruction_set();
  if (!machine_has(*isa))
    fail(ErrorCode::unsupported, "instruction set '{}' is not on this machine; it has up to '{}'", instruction_set_name(*isa),
         instruction_set_name(widest_instruction_set()));
  return *isa;
}
}  // namespace

Backend::Backend(const BackendOptions& options)
    : isa_(checked(options.isa)), table_(kernel_table(isa_, options.kind == BackendKind::traced)),
      device_(options.kind, options.threads > 0 ? options.threads : available_processors()) {
  if (options.kind == BackendKind::emulated) cuda_ = make_host_launcher();
  if (options.kind == BackendKind::cuda) cuda_ = make_device_launcher(device_.stream().cuda()->handle());
}

Backend::~Backend() {
  try {
    device_.stream().synchronize();  // queued work uses the launcher
  } catch (...) {  // nobody is left to be told
  }
}

std::string_view instruction_set_name(InstructionSet isa) {
  constexpr std::string_view names[] = {"scalar", "avx2", "avx512"};
  return names[static_cast<int>(isa)];
}

InstructionSet instruction_set_by_name(std::string_view name) {
  for (InstructionSet isa : {InstructionSet::scalar, InstructionSet::avx2, InstructionSet::avx512})
    if (instruction_set_name(isa) == name) return isa;
  fail(ErrorCode::invalid_argument, "instruction set is '{}', allowed are scalar, avx2, avx512{}", name,
       did_you_mean(name, {"scalar", "avx2", "avx512"}));
}

bool machine_has(InstructionSet isa) {
  const bool base = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (isa != InstructionSet::avx512) return base;
  return base && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vl");
}

InstructionSet widest_instruction_set() { return machine_has(InstructionSet::avx512) ? InstructionSet::avx512 : InstructionSet::avx2; }

}  // namespace lockstep
