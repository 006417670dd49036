#include "cli/profile_options.h"

#include "base/log.h"
#include "base/thread_pool.h"
#include "cli/roofline.h"
#include "observe/trace.h"

namespace lockstep {

ProfileOptions::~ProfileOptions() {
  if (profile_ && !trace_.empty()) end_trace();  // the command failed: no trace is written
}

void ProfileOptions::add_options(OptionTable& table) {
  table
      .flag("profile-operations", &operations_,
            "Say of each operation how often it ran, its seconds, arithmetic and bytes, and its share of the machine's limit")
      .command_line_only();
  table.input("roofline", &roofline_, "FILE", "The machine's limits, as `lockstep bench roofline --out FILE` wrote them, instead of measuring them first")
      .command_line_only();
  table.refused("without --profile-operations", [this] { return !operations_; });
  table.output_file("trace", &trace_, "Write what each thread did when, for https://ui.perfetto.dev (Chrome's trace events); the first half million events")
      .command_line_only();
  table.after_reading([this, &table] { overwrite_ = table.overwrite(); });
}

void ProfileOptions::begin(const RuntimeSettings& machine) {
  if (!operations_ && trace_.empty()) return;
  if (machine.device != "cpu" || (machine.backend != "cpu" && machine.backend != "deferred"))
    throw UsageError(fmt::format("--{} measures the kernels of processors; device is {} and backend is {}, allowed are cpu, and cpu or deferred",
                                 operations_ ? "profile-operations" : "trace", machine.device, machine.backend));
  if (operations_) {
    constexpr double kSeconds = 0.3;
    const std::int64_t threads = machine.threads > 0 ? machine.threads : available_processors();
    limit_ = roofline_.empty() ? measure_limits(machine, threads, kSeconds) : read_roofline(roofline_).at(threads);
  }
  if (!trace_.empty()) begin_trace();
  profile_ = std::make_unique<OperationProfile>();
}

void ProfileOptions::leave_out(const std::function<void()>& work) {
  if (profile_) profile_->leave_out(work);
  else work();
}

std::optional<OperationReport> ProfileOptions::end() {
  if (!profile_) return std::nullopt;
  std::optional<OperationReport> report;
  if (operations_) report = profile_->report(limit_);
  profile_.reset();
  if (trace_.empty()) return report;
  const TraceRecording recording = end_trace();
  write_trace(check_output_file(trace_, overwrite_), recording);
  log_info("trace written", {{"file", trace_}, {"events", recording.events.size()}, {"dropped", recording.dropped}});
  return report;
}

void ProfileOptions::say(std::FILE* to) {
  if (const std::optional<OperationReport> report = end()) std::fprintf(to, "%s\n", operation_text(*report).c_str());
}

}  // namespace lockstep
