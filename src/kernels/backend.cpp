#include "kernels/backend.h"

#include "base/error.h"
#include "base/give_way_everywhere.h"
#include "kernels/cuda/launcher.h"
#include "kernels/table.h"

namespace lockstep {

namespace {
InstructionSet checked(std::optional<InstructionSet> isa) {
  if (!isa) return widest_instruction_set();
  if (!machine_has(*isa))
    fail(ErrorCode::unsupported, "instruction set '{}' is not on this machine; it has up to '{}'", instruction_set_name(*isa),
         instruction_set_name(widest_instruction_set()));
  return *isa;
}

// The pause point of a backend that was given none, in tests that let every kernel give way (base/give_way_everywhere.h).
class EverywherePoint final : public PausePoint {
 public:
  void pause() override { overwrite_scratch(); }
  std::int64_t longest_kernel() const override { return 1; }
};
}  // namespace

Backend::Backend(const BackendOptions& options)
    : isa_(checked(options.isa)),
      table_(kernel_table(isa_, options.kind == BackendKind::traced)),
      device_(options.kind, options.threads > 0 ? options.threads : available_processors()) {
  if (gives_way_everywhere()) pause_point_ = std::make_shared<EverywherePoint>();
  if (options.kind == BackendKind::emulated) cuda_ = make_host_launcher();
  if (options.kind == BackendKind::cuda) cuda_ = make_device_launcher(device_.stream().cuda()->handle());
}

Backend::~Backend() {
  try {
    device_.stream().synchronize();  // queued work uses the launcher
  } catch (...) {                    // nobody is left to be told
  }
}

}  // namespace lockstep
