// Algorithms of reinforcement learning by name: what `--algorithm NAME` stands for, each part of which is an option of its own too.
// An algorithm is a row here and a line of docs/rl.md.
//   apply_algorithm("dapo", settings, [&](std::string_view option) { return options.contains(option); });
// Pure functions.
#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "rl/settings.h"

namespace lockstep {

// The parts are those of the algorithm's paper. The coefficient of KL to a reference is 0 unless --kl-coefficient sets it; the row says where KL
// enters.
struct AlgorithmRow {
  std::string_view name, paper;
  std::string_view advantages;       // rl/advantages/advantages.h
  std::string_view loss;             // train/losses.h
  double clip_low, clip_high;        // of losses that clip
  std::string_view averaging;        // train/losses.h
  std::int64_t redraws;              // of a group whose rewards are all equal
  double overlong_share;             // of max_tokens: the end of a completion where it costs reward
  std::string_view kl_in, kl;        // "loss" or "reward" (rl/settings.h), and the estimator (docs/losses.md)
  std::string_view critic = "none";  // "full": its advantages are of a value model's values, not of rewards alone
  // Of a sampler's other numbers (rl/settings.h). No paper's own has one, and here sampler and trainer have the same.
  std::string_view correction = "none";
};
const std::vector<AlgorithmRow>& algorithm_rows();
std::vector<std::string> algorithm_names();  // kCustomAlgorithm first

// No algorithm: every part is what its own option says.
inline constexpr std::string_view kCustomAlgorithm = "custom";

// Sets settings.algorithm and every part that the user did not set: `given("clip-low")` says that an option was.
// Error invalid_argument: an unknown name.
void apply_algorithm(std::string_view name, RlSettings& settings, const std::function<bool(std::string_view option)>& given);

}  // namespace lockstep
