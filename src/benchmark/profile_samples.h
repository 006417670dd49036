// Measures what share of a program's processor time goes into given functions: the system's profiling timer interrupts it every
// millisecond of processor time, or as often as the system's clock ticks, and the interrupted address is looked up in the program's own symbols.
//   ProfileSamples samples; samples.begin(); work(); samples.end(); samples.share({"deposit_tile"});
// The run is unchanged: no counter in a kernel. One at a time in a process.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

class ProfileSamples {
 public:
  // Throws unsupported when the program has no symbols (it was stripped).
  ProfileSamples();
  ~ProfileSamples() { end(); }
  ProfileSamples(const ProfileSamples&) = delete;

  std::vector<std::string> symbols() const;  // of the program's functions, by address
  void begin();
  void end();
  std::int64_t count() const;  // samples so far; at most a million are kept
  // The share of the samples, 0 to 1, in functions whose symbol contains one of the names. Throws internal without samples.
  double share(const std::vector<std::string>& names) const;
  // The share of each group of symbols, the largest first. `group_of` gets an empty symbol for addresses outside this program. Throws
  // internal without samples.
  std::vector<std::pair<std::string, double>> shares(const std::function<std::string_view(std::string_view symbol)>& group_of) const;

 private:
  struct Function {
    std::uint64_t begin = 0, end = 0;
    std::string symbol;
  };
  // Samples of each function, in the order of functions_; behind them those of no function.
  std::vector<std::int64_t> samples_of_functions() const;

  std::vector<Function> functions_;  // by address
  bool running_ = false;
};

}  // namespace lockstep
