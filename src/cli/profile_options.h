// --profile-operations, --roofline and --trace of a command that computes: how long its operations took, and when they ran. No result changes.
//   ProfileOptions profile; profile.add_options(table); ... profile.begin(runtime); work(); profile.say(stderr);
// One thread; one at a time in a process.
#pragma once
#include <cstdio>
#include <functional>
#include <optional>

#include "benchmark/operation_profile.h"
#include "cli/options.h"

namespace lockstep {

struct RuntimeSettings;

class ProfileOptions {
 public:
  ProfileOptions() = default;
  ~ProfileOptions();
  ProfileOptions(const ProfileOptions&) = delete;
  ProfileOptions& operator=(const ProfileOptions&) = delete;
  // On the command line alone.
  void add_options(OptionTable& table);
  // Call when the table has read all options, before a backend's first work. Measures the machine's limits if no file has them. Errors:
  // UsageError for a device whose kernels are not measured; those of read_roofline and Roofline::at.
  void begin(const RuntimeSettings& machine);
  bool operations() const { return operations_; }  // --profile-operations was given
  bool on() const { return profile_ != nullptr; }
  // Runs `work`, which no report tells of (a trace does).
  void leave_out(const std::function<void()>& work);
  // Call after the last work: writes the trace, and returns the report for --profile-operations. Empty without that option, without begin() and in a
  // second call. Errors: those of write_trace.
  std::optional<OperationReport> end();
  // end(), and prints its report as a table.
  void say(std::FILE* to);

 private:
  bool operations_ = false;
  Overwrite overwrite_ = Overwrite::no;
  std::string roofline_, trace_;
  RooflinePoint limit_;
  std::unique_ptr<OperationProfile> profile_;  // from begin() to end()
};

}  // namespace lockstep
