// What share of a program's processor time goes into some of its functions: the system's profiling timer stops the process every
// millisecond of its processor time, and where it stood is looked up in the program's own symbols. It measures a run as it is, with no
// counter in a kernel. One at a time in a process.
//   ProfileSamples samples; samples.begin(); work(); samples.end(); samples.share({"deposit_tile"});
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

class ProfileSamples {
 public:
  // Throws unsupported when the program has no symbols (it was stripped).
  ProfileSamples();
  ~ProfileSamples() { end(); }
  ProfileSamples(const ProfileSamples&) = delete;

  void begin();
  void end();
  std::int64_t count() const;  // samples so far; at most a million are kept
  // Of the samples, those in functions whose symbol contains one of the names. Throws internal without samples.
  double share(const std::vector<std::string>& names) const;

 private:
  struct Function {
    std::uint64_t begin = 0, end = 0;
    std::string symbol;
  };
  std::vector<Function> functions_;  // by address
  bool running_ = false;
};

}  // namespace lockstep
