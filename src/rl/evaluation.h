// Evaluates a model in an environment: held-out problems (the same for a seed, none twice), several samples each and the greedy answer.
//   Evaluation e = evaluate(*environment, tokenizer, sampler, {.problems = 2000, .samples = 8});
// The same model gives the same numbers on every machine. Uses the interface Sampler only. One thread.
#pragma once
#include <nlohmann/json.hpp>

#include "rl/bootstrap.h"
#include "rl/rollout.h"

namespace lockstep {

struct EvaluationSettings {
  std::int64_t problems = 2000, samples = 8, max_tokens = 16;
  double temperature = 1;
  std::uint64_t seed = 20260601;  // of problems, sampling and resampling
  std::int64_t at_once = 256;     // problems in flight at once; changes no bit
  std::int64_t compact_at = 0;    // tokens of a context window, of an environment of many turns (rl/trajectory/play.h); 0: there is one
};

struct Evaluation {
  std::string environment;
  std::int64_t problems = 0, samples = 0;
  Interval pass_at_1;  // sampled: over problems, the share of right samples
  Interval pass_at_k;  // over problems, whether any of the samples is right; k = samples
  Interval greedy;
  Interval greedy_reward;  // the mean reward of the greedy answers: also what is right in part counts, as in `recall`
  Interval ended;          // the share of samples that ended with an end token
  std::int64_t tokens = 0;
  std::int64_t sample_tokens = 0;  // of the samples only, including those rolled back (Episode::check)
  std::uint64_t weights_version = 0;
  std::vector<bool> greedy_right;  // by problem
};

// The first `count` held-out problems of a seed, each a different one. Error invalid_argument when there are fewer.
std::vector<Problem> held_out_problems(const Environment& environment, std::uint64_t seed, std::int64_t count);

// `progress(problems, tokens)` after each part. Errors: invalid_argument for a setting; those of RolloutSource.
Evaluation evaluate(const Environment& environment, const Tokenizer& tokenizer, Sampler& sampler, const EvaluationSettings& settings,
                    const std::function<void(std::int64_t, std::int64_t)>& progress = {});

// {"environment", "problems", "samples", "pass_at_1": {"value", "low", "high"}, "pass_at_k", "k", "greedy", ...}.
nlohmann::ordered_json to_json(const Evaluation& evaluation);
nlohmann::ordered_json to_json(const Interval& interval);

}  // namespace lockstep
