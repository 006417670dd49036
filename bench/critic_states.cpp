// Measures how right a critic is: at the beginning of a random turn of each of many rollouts its value, and the mean reward of many continuations from
// there by the same policy; and the advantages that its values give the tokens of failed rollouts. Beside it, as a control, the same critic fed zeros in
// the place of all tokens.
//   ninja -C build critic_states
//   build/bench/critic_states MODEL CRITIC [--environment lockbox] [--states 500] [--continuations 64] [--seed 1] [--compact-at 80]
//                             [--max-tokens 16] [--threads 1]
// MODEL is the policy's folder, CRITIC one with a value head (runs/NAME/critic/export). Problems are held-out ones. In a task of one answer states are its
// beginnings, and --compact-at is 0. Prints one JSON object; its figures are computed by bench/critic_right.py.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/philox.h"
#include "rl/evaluation.h"
#include "rl/gae.h"
#include "rl/trajectory/policy_datum.h"
#include "runs/rl_stack.h"

namespace {
using namespace lockstep;
using Json = nlohmann::ordered_json;

std::map<std::string, int> numbers{{"--states", 500}, {"--continuations", 64}, {"--seed", 1}, {"--compact-at", 80}, {"--max-tokens", 16}, {"--threads", 1}};
constexpr double kLambdas[] = {0, 0.5, 0.8, 0.9, 0.95, 0.98, 1};
constexpr std::size_t kAtOnce = 25;  // states whose continuations are sampled together

std::string environment_name = "lockbox";

std::uint64_t seed() { return static_cast<std::uint64_t>(numbers["--seed"]); }

// The turns of a rollout, in time.
std::vector<Turn> turns_of(const Rollout& rollout) {
  std::vector<Turn> turns;
  for (const Chain& chain : rollout.chains) turns.insert(turns.end(), chain.turns.begin(), chain.turns.end());
  return turns;
}

Play replayed(const Environment& environment, const Problem& problem, const Tokenizer& tokenizer, const std::vector<Turn>& turns, std::size_t count) {
  Play play(environment, problem, tokenizer, {.compact_at = numbers["--compact-at"]});
  for (std::size_t t = 0; t < count; ++t) play.take(turns[t]);
  return play;
}

// By rollout and chain, the values of the states before the policy's tokens; with `zeros` all tokens are 0.
std::vector<std::vector<std::vector<double>>> values_of(LocalCritic& critic, const std::vector<RolloutGroup>& groups, bool zeros) {
  std::vector<ValueDatum> data;
  for (const RolloutGroup& group : groups)
    for (const Chain& chain : group.rollouts[0].chains) {
      const PolicyDatum policy = policy_datum(chain, 1);
      ValueDatum& datum = data.emplace_back(ValueDatum{.tokens = policy.tokens, .weights = policy.weights, .returns = {}, .values = {}});
      if (zeros) std::fill(datum.tokens.begin(), datum.tokens.end(), 0);
    }
  const std::vector<std::vector<float>> rows = critic.values(data);
  std::vector<std::vector<std::vector<double>>> values;
  std::size_t d = 0;
  for (const RolloutGroup& group : groups) {
    values.emplace_back();
    for (std::size_t c = 0; c < group.rollouts[0].chains.size(); ++c, ++d) {
      std::vector<double>& own = values.back().emplace_back();
      for (std::size_t i = 0; i < data[d].weights.size(); ++i)
        if (data[d].weights[i] != 0) own.push_back(static_cast<double>(rows[d][i]));
    }
  }
  return values;
}

// The place, among the tokens that the policy wrote, of the action that failed: in the first turn that is wrong, the first token that a perfect policy
// would not write. A summary of lockbox, and its last answer, is wrong if its last digit is.
std::size_t failing_token(const Environment& environment, const Problem& problem, const Tokenizer& tokenizer, const Rollout& rollout) {
  const std::vector<Turn> turns = turns_of(rollout);
  Play play(environment, problem, tokenizer, {.compact_at = numbers["--compact-at"]});
  std::size_t before = 0;
  for (const Turn& turn : turns) {
    const std::string reference = play.reference();
    std::vector<std::int32_t> written = turn.tokens;
    if (turn.ended) written.pop_back();
    const std::string answer = tokenizer.decode(written, false);
    const bool sums = environment.name() == "lockbox" && (turn.summary || reference.size() > 1);
    const bool right = turn.ended && (answer == reference || (sums && !answer.empty() && answer.back() == reference.back()));
    if (!right) {
      const std::vector<std::int32_t> wanted = tokenizer.encode(reference, false);
      std::size_t i = 0;
      while (i < written.size() && i < wanted.size() && written[i] == wanted[i]) ++i;
      return before + std::min(i, turn.tokens.size() - 1);
    }
    before += turn.tokens.size();
    play.take(turn);
  }
  return before - 1;  // none: the rollout failed for another reason, such as a calculation that is not digits
}

// For each lambda, by failed rollout: the advantage of the failing token and the sum and count of the others.
Json advantages(const std::vector<RolloutGroup>& groups, const std::vector<std::vector<std::vector<double>>>& values, const std::vector<std::size_t>& failing) {
  std::vector<GaeRollout> judged;
  for (std::size_t r = 0; r < groups.size(); ++r) {
    GaeRollout& rollout = judged.emplace_back();
    for (const std::vector<double>& chain : values[r]) {
      GaeChain& own = rollout.chains.emplace_back(GaeChain{.tokens = {}, .window = rollout.chains.size()});
      for (const double value : chain) own.tokens.push_back({.trained = true, .value = value, .reward = 0});
    }
    rollout.reward = groups[r].rollouts[0].total_reward();
  }
  Json rows = Json::array();
  for (const double lambda : kLambdas) {
    const GaeBatch estimates = estimate_gae(judged, {.lambda = lambda, .whiten = false});
    Json row{{"lambda", lambda}, {"failing", Json::array()}, {"routine_sum", Json::array()}, {"routine_tokens", Json::array()}};
    for (std::size_t r = 0; r < groups.size(); ++r) {
      if (judged[r].reward > 0) continue;
      double sum = 0, failed = 0;
      std::size_t at = 0;
      for (const std::vector<double>& chain : estimates.advantages[r])
        for (const double advantage : chain) (at++ == failing[r] ? failed : sum) += advantage;
      row["failing"].push_back(failed), row["routine_sum"].push_back(sum), row["routine_tokens"].push_back(at - 1);
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

Json measure(const std::string& model, const std::string& critic_folder) {
  RlStackSettings settings;
  settings.runtime.model = model;
  settings.runtime.threads = numbers["--threads"];
  settings.critic = TrainedSettings{};
  settings.micro_batch = 64;  // of its values alone: no forward is kept for a gradient
  settings.critic_model = critic_folder;
  RlStack stack(settings);
  const auto environment = make_environment(environment_name);
  check_compact_at(numbers["--compact-at"], environment->many_turns(), environment_name);
  const RolloutOptions options{.samples = 1, .max_tokens = numbers["--max-tokens"], .compact_at = numbers["--compact-at"]};
  RolloutSource source(*environment, stack.tokenizer(), stack.rollouts());
  const std::vector<Problem> problems = held_out_problems(*environment, seed(), numbers["--states"]);
  const std::vector<RolloutGroup> groups = source.sample(problems, options, [&](std::size_t i) { return derived_seed(seed(), SeedUse::rollouts, i); });
  const auto values = values_of(*stack.critic(), groups, false), zeros = values_of(*stack.critic(), groups, true);

  std::vector<std::size_t> failing(groups.size());
  std::vector<std::size_t> chosen;  // of each rollout the turn whose beginning is the state
  Json states = Json::array();
  double reward = 0;
  for (std::size_t r = 0; r < groups.size(); ++r) {
    const Rollout& rollout = groups[r].rollouts[0];
    reward += rollout.total_reward() / static_cast<double>(groups.size());
    if (rollout.total_reward() == 0) failing[r] = failing_token(*environment, problems[r], stack.tokenizer(), rollout);
    RandomSequence random(seed(), RandomStream::bootstrap, r);
    chosen.push_back(random.below(static_cast<std::uint32_t>(rollout.turns())));
    std::size_t t = 0;
    for (std::size_t c = 0; c < rollout.chains.size(); ++c) {
      std::size_t at = 0;
      for (const Turn& turn : rollout.chains[c].turns) {
        if (t++ == chosen[r]) states.push_back(Json{{"turn", chosen[r]}, {"window", c}, {"value", values[r][c][at]}, {"zeros", zeros[r][c][at]}});
        at += turn.tokens.size();
      }
    }
  }

  const auto continuations = static_cast<std::size_t>(numbers["--continuations"]);
  for (std::size_t first = 0; first < groups.size(); first += kAtOnce) {
    std::vector<Play> plays;
    const std::size_t end = std::min(groups.size(), first + kAtOnce);
    for (std::size_t r = first; r < end; ++r)
      for (std::size_t j = 0; j < continuations; ++j)
        plays.push_back(replayed(*environment, problems[r], stack.tokenizer(), turns_of(groups[r].rollouts[0]), chosen[r]));
    source.play_on(plays, options, [&](std::size_t k) {
      return PlayNoise{.seed = derived_seed(seed(), SeedUse::evaluation, first + k / continuations), .sample = static_cast<std::int32_t>(k % continuations)};
    });
    for (std::size_t r = first; r < end; ++r) {
      double sum = 0;
      for (std::size_t j = 0; j < continuations; ++j) sum += plays[(r - first) * continuations + j].rollout().total_reward();
      states[r]["mean"] = sum / static_cast<double>(continuations);
    }
    std::fprintf(stderr, "%zu of %zu states\n", end, groups.size());
  }
  return {{"reward", reward},
          {"continuations", continuations},
          {"states", std::move(states)},
          {"advantages", advantages(groups, values, failing)},
          {"advantages_zeros", advantages(groups, zeros, failing)}};
}

}  // namespace

int main(int count, char** words) {
  std::vector<std::string> folders;
  for (int i = 1; i < count; ++i) {
    const bool named = std::strcmp(words[i], "--environment") == 0;
    if (!named && numbers.count(words[i]) == 0) {
      folders.emplace_back(words[i]);
    } else if (++i < count) {
      if (named) environment_name = words[i];
      else numbers[words[i - 1]] = std::atoi(words[i]);
    }
  }
  if (folders.size() != 2) {
    std::fprintf(
        stderr,
        "use: critic_states MODEL CRITIC [--environment NAME] [--states N] [--continuations N] [--seed N] [--compact-at N] [--max-tokens N] [--threads N]\n");
    return 2;
  }
  try {
    std::printf("%s\n", measure(folders[0], folders[1]).dump().c_str());
  } catch (const Error& e) {
    std::fprintf(stderr, "critic_states: %s\n", e.message().c_str());
    return 1;
  }
}
