#include "rl/evaluation.h"

#include <algorithm>
#include <unordered_set>

#include "base/error.h"

namespace lockstep {

std::vector<Problem> held_out_problems(const Environment& environment, std::uint64_t seed, std::int64_t count) {
  if (count < 1 || count > 10'000'000) fail(ErrorCode::invalid_argument, "problems is {}, allowed is 1 to 10000000", count);
  std::vector<Problem> problems;
  std::unordered_set<std::uint64_t> seen;
  const std::uint64_t tries = static_cast<std::uint64_t>(count) * 20 + 1000;
  for (std::uint64_t index = 0; index < tries && static_cast<std::int64_t>(problems.size()) < count; ++index) {
    Problem problem = environment.problem(Split::held_out, seed, index);
    if (seen.insert(problem.id).second) problems.push_back(std::move(problem));
  }
  if (static_cast<std::int64_t>(problems.size()) < count)
    fail(ErrorCode::invalid_argument, "problems is {}, the environment '{}' has about {} that are held out", count, environment.name(), problems.size());
  return problems;
}

Evaluation evaluate(const Environment& environment, const Tokenizer& tokenizer, Sampler& sampler, const EvaluationSettings& settings,
                    const std::function<void(std::int64_t, std::int64_t)>& progress) {
  if (settings.samples < 1 || settings.samples > 4096) fail(ErrorCode::invalid_argument, "samples is {}, allowed is 1 to 4096", settings.samples);
  check_compact_at(settings.compact_at, environment.many_turns(), environment.name());
  const std::vector<Problem> problems = held_out_problems(environment, settings.seed, settings.problems);
  RolloutSource source(environment, tokenizer, sampler);
  Evaluation result;
  result.environment = environment.name();
  result.problems = settings.problems;
  result.samples = settings.samples;
  std::vector<std::vector<double>> columns(5);  // pass@1, pass@k, greedy, ended, greedy reward
  const auto at_once = static_cast<std::size_t>(std::max<std::int64_t>(1, settings.at_once));
  for (std::size_t begin = 0; begin < problems.size(); begin += at_once) {
    const std::size_t end = std::min(problems.size(), begin + at_once);
    const std::vector<Problem> part(problems.begin() + static_cast<std::ptrdiff_t>(begin), problems.begin() + static_cast<std::ptrdiff_t>(end));
    const auto seed_of = [&](std::size_t i) { return derived_seed(settings.seed, SeedUse::evaluation, begin + i); };
    std::int64_t tokens = 0;
    RolloutOptions sampled{settings.samples, settings.temperature, settings.max_tokens};
    sampled.compact_at = settings.compact_at;
    for (const RolloutGroup& group : source.sample(part, sampled, seed_of)) {
      double right = 0, ended = 0;
      for (const Rollout& r : group.rollouts) {
        right += r.total_reward() >= 1;
        ended += r.ended;
        tokens += r.written();
        result.sample_tokens += r.written() + r.rolled_back;
      }
      const auto n = static_cast<double>(group.rollouts.size());
      columns[0].push_back(right / n);
      columns[1].push_back(right > 0 ? 1 : 0);
      columns[3].push_back(ended / n);
    }
    result.weights_version = source.weights_version();
    RolloutOptions greedy{1, 0, settings.max_tokens};
    greedy.compact_at = settings.compact_at;
    for (const RolloutGroup& group : source.sample(part, greedy, seed_of)) {
      const Rollout& r = group.rollouts.front();
      columns[2].push_back(r.total_reward() >= 1 ? 1 : 0);
      columns[4].push_back(r.total_reward());
      result.greedy_right.push_back(r.total_reward() >= 1);
      tokens += r.written();
    }
    if (source.weights_version() != result.weights_version)
      fail(ErrorCode::internal, "the weights changed during an evaluation, from version {} to {}", result.weights_version, source.weights_version());
    result.tokens += tokens;
    if (progress) progress(static_cast<std::int64_t>(part.size()), tokens);
  }
  const std::vector<Interval> intervals = bootstrap_means(columns, derived_seed(settings.seed, SeedUse::bootstrap, 0));
  result.pass_at_1 = intervals[0];
  result.pass_at_k = intervals[1];
  result.greedy = intervals[2];
  result.ended = intervals[3];
  result.greedy_reward = intervals[4];
  return result;
}

nlohmann::ordered_json to_json(const Interval& i) { return {{"value", i.value}, {"low", i.low}, {"high", i.high}}; }

nlohmann::ordered_json to_json(const Evaluation& e) {
  return {{"environment", e.environment},
          {"problems", e.problems},
          {"samples", e.samples},
          {"pass_at_1", to_json(e.pass_at_1)},
          {"k", e.samples},
          {"pass_at_k", to_json(e.pass_at_k)},
          {"greedy", to_json(e.greedy)},
          {"greedy_reward", to_json(e.greedy_reward)},
          {"ended", to_json(e.ended)},
          {"tokens", e.tokens},
          {"sample_tokens", e.sample_tokens}};
}

}  // namespace lockstep
