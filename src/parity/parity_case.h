// Repeats a difference between sampling and training from its file (checkpoint/difference_case.h): `lockstep parity --case FILE`. The text is scored again
// in the sampler's ways (decoded over the cache as it was sampled, and by prefill) and in the trainer's (a forward, one with a gradient, one that reads
// what sampling kept), in the run's own configuration and on every instruction set and number of threads that parity visits.
//   const CaseReport report = repeat_case("runs/r/difference/case.json"); std::puts(to_text(report).c_str());
// Knows no command line. One thread at a time; it makes its own runtimes.
#pragma once
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/stop_token.h"
#include "checkpoint/difference_case.h"

namespace lockstep {

// A trained token with two bit patterns.
struct CasePoint {
  std::int64_t position = 0;  // in the text
  std::int32_t token = 0;
  std::uint32_t expected = 0, got = 0;
};
struct CaseCount {
  std::int64_t different = 0;
  std::optional<CasePoint> first;
};
// The log-probabilities of `one`'s trained tokens beside others of them.
CaseCount compare_bits(const DifferenceCase& one, const std::vector<std::uint32_t>& expected, const std::vector<std::uint32_t>& got);

// One way on one configuration.
struct CaseWay {
  std::string way, place;
  bool samples = false;                  // the sampler's; else the trainer's
  CaseCount from_sampler, from_trainer;  // from the bits that the file holds
  std::int64_t other_kept_sets = 0;      // of sampled tokens: what they could be drawn from is not what the file holds
};

// Two ways with other bits here.
struct CaseFinding {
  CasePoint point;
  std::size_t expected = 0, got = 0;  // whose: of CaseReport::ways
};

struct CaseReport {
  std::string file;
  DifferenceCase one;
  CaseCount recorded;  // the trainer's bits in the file beside the sampler's
  std::vector<CaseWay> ways;
  std::optional<CaseFinding> finding;  // the first
  std::vector<std::string> notes;      // what could not be tried, and why
  // Ways differ here, as they did there. If not, the file's difference cannot be repeated.
  bool repeated() const { return finding.has_value(); }
};

struct CaseOptions {
  bool quiet = true;  // no progress on stderr
  StopToken stop = {};
};

// Errors: those of read_case; not_found; invalid_argument where a model, an adapter or the profile has another digest than the file's, and for a token,
// a position or a kept set that the model does not have; unsupported for a profile that the model does not have; resource_exhausted; numeric; cancelled.
CaseReport repeat_case(const std::filesystem::path& file, const CaseOptions& options = {});
nlohmann::ordered_json to_json(const CaseReport& report);
std::string to_text(const CaseReport& report);

}  // namespace lockstep
