// --profile-operations, --roofline and --trace of a command that computes: what its operations took, and when. They change no result.
//   ProfileOptions profile; profile.add_options(table); ... profile.begin(runtime); work(); profile.say(stderr);
// One thread; one at a time in a process.
#pragma once
#include <cstdio>
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
  // Once the table has read all, before the first work of a backend. Measures the limits where no file has them. Errors: a UsageError for a device whose
  // kernels are not measured; those of read_roofline and Roofline::at.
  void begin(const RuntimeSettings& machine);
  bool on() const { return profile_ != nullptr; }
  // After the last work: writes the trace, and returns what --profile-operations asks for. Nothing the second time, or without begin(). Errors: those of
  // write_trace.
  std::optional<OperationReport> end();
  // end(), and its report as a table.
  void say(std::FILE* to);

 private:
  bool operations_ = false;
  Overwrite overwrite_ = Overwrite::no;
  std::string roofline_, trace_;
  RooflinePoint limit_;
  std::unique_ptr<OperationProfile> profile_;  // from begin() to end()
};

}  // namespace lockstep
