// Rollouts of many turns: what is asked of the sampler, that what a window shows suffices to play, and that rollouts at the same time change nothing.
#include "rl/rollout.h"

#include <gtest/gtest.h>

#include <set>

#include "base/error.h"
#include "rl/lockbox_test_tools.h"
#include "rl/step_batch.h"

namespace lockstep {
namespace {

struct RolloutTest : testing::Test {
  Tokenizer tokenizer = countdown_tokenizer();
  std::unique_ptr<Environment> lockbox = make_environment("lockbox");
  LockboxPlayer player{tokenizer};

  std::vector<Problem> problems(std::uint64_t count) const {
    std::vector<Problem> made;
    for (std::uint64_t i = 0; i < count; ++i) made.push_back(lockbox->problem(Split::train, 1, i));
    return made;
  }
  static std::uint64_t seed_of(std::size_t i) { return 100 + i; }
};

TEST_F(RolloutTest, WhatAWindowShowsSufficesToPlay) {
  player.right = 1;
  RolloutSource source(*lockbox, tokenizer, player);
  const auto groups = source.sample(problems(5), {.samples = 2, .compact_at = 72}, seed_of);
  ASSERT_EQ(groups.size(), 5u);
  for (const RolloutGroup& group : groups) {
    ASSERT_EQ(group.rollouts.size(), 2u);
    for (const Rollout& rollout : group.rollouts) {
      EXPECT_TRUE(rollout.ended);
      EXPECT_EQ(rollout.total_reward(), 1.0);
      EXPECT_EQ(rollout.chains.size(), 4u);
    }
  }
  EXPECT_EQ(player.calls, std::vector<std::size_t>(28, 10));  // 24 doors, the sum, three summaries
  std::set<std::uint64_t> seeds;
  for (const SampleRequest& r : player.requests) {
    EXPECT_LE(std::ssize(r.prompt) + r.max_tokens, 96);
    seeds.insert(r.seed);
  }
  EXPECT_EQ(seeds.size(), 5u * 4);  // each window has its own noise
  for (std::size_t i = 0; i < 10; ++i) {
    EXPECT_EQ(player.requests[i].seed, seed_of(i / 2));  // the first that of the problem
    EXPECT_EQ(player.requests[i].sample_index, static_cast<std::int32_t>(i % 2));
  }
}

TEST_F(RolloutTest, CompanyChangesNothing) {
  player.right = 0.97;
  RolloutSource source(*lockbox, tokenizer, player);
  const RolloutOptions options{.samples = 3, .compact_at = 72};
  const auto together = source.sample(problems(6), options, seed_of);
  std::set<std::int64_t> lengths;
  for (std::size_t i = 0; i < together.size(); ++i) {
    const auto alone = source.sample({problems(6)[i]}, options, [&](std::size_t) { return seed_of(i); });
    for (std::size_t j = 0; j < 3; ++j) {
      const Rollout &one = alone[0].rollouts[j], &other = together[i].rollouts[j];
      EXPECT_EQ(one.total_reward(), other.total_reward());
      ASSERT_EQ(one.chains.size(), other.chains.size());
      for (std::size_t c = 0; c < one.chains.size(); ++c) {
        const PolicyDatum a = policy_datum(one.chains[c], one.temperature), b = policy_datum(other.chains[c], other.temperature);
        EXPECT_EQ(a.tokens, b.tokens);
        EXPECT_EQ(a.targets, b.targets);
        EXPECT_EQ(a.old_logprobs, b.old_logprobs);
      }
      lengths.insert(other.turns());
    }
  }
  EXPECT_GT(lengths.size(), 3u);  // they ended at different turns, or this shows little
}

// One advantage a rollout: all its chains have it, and every token that the policy wrote is trained once.
TEST_F(RolloutTest, AllChainsOfARolloutAreTrained) {
  player.right = 0.97;
  RlSettings settings;
  settings.environment = "lockbox";
  settings.compact_at = 72;
  settings.problems = 6;
  settings.rollouts = 4;
  RolloutSource source(*lockbox, tokenizer, player);
  const StepBatch batch = step_batch(*lockbox, source, settings, 0);
  std::size_t d = 0, spread = 0;
  std::int64_t trained = 0, turns = 0, chains = 0;
  for (std::size_t g = 0; g < batch.groups.size(); ++g) {
    EXPECT_EQ(batch.begins[g], d);
    const std::vector<double> rewards = batch.groups[g].rewards();
    double mean = 0;
    for (const double r : rewards) mean += r / 4;
    for (std::size_t j = 0; j < rewards.size(); ++j) {
      const Rollout& rollout = batch.groups[g].rollouts[j];
      turns += rollout.turns();
      for (std::size_t c = 0; c < rollout.chains.size(); ++c, ++d, ++chains) {
        std::int64_t own = 0;
        each_trained(batch.data[d], [&](std::size_t row) {
          EXPECT_EQ(batch.data[d].advantages[row], static_cast<float>(rewards[j] - mean));
          spread += batch.data[d].advantages[row] != 0;
          ++own;
        });
        EXPECT_EQ(own, rollout.chains[c].written());
        trained += own;
      }
    }
  }
  EXPECT_EQ(d, batch.data.size());
  EXPECT_EQ(batch.begins.back(), d);
  EXPECT_EQ(batch.tokens, trained);
  EXPECT_EQ(batch.turns, turns);
  EXPECT_EQ(batch.chains, chains);
  EXPECT_GT(spread, 0u);
  EXPECT_GT(chains, batch.rollouts);
}

// Summaries that are not trained: the same rollouts, whose other tokens have the same advantages.
TEST_F(RolloutTest, SummariesMayCountAsShown) {
  player.right = 0.97;
  RlSettings settings;
  settings.environment = "lockbox";
  settings.compact_at = 72;
  settings.problems = 4;
  settings.rollouts = 4;
  RolloutSource source(*lockbox, tokenizer, player);
  const StepBatch all = step_batch(*lockbox, source, settings, 0);
  settings.train_summaries = false;
  const StepBatch without = step_batch(*lockbox, source, settings, 0);
  ASSERT_EQ(all.data.size(), without.data.size());
  EXPECT_EQ(all.tokens, without.tokens);  // sampled
  std::size_t d = 0, summaries = 0;
  for (const RolloutGroup& group : without.groups)
    for (const Rollout& rollout : group.rollouts) {
      EXPECT_LE(rollout.trained(), rollout.written());
      for (const Chain& chain : rollout.chains) {
        std::vector<std::size_t> trained;
        each_trained(without.data[d], [&](std::size_t row) {
          trained.push_back(row);
          EXPECT_EQ(without.data[d].advantages[row], all.data[d].advantages[row]);
          EXPECT_EQ(without.data[d].targets[row], all.data[d].targets[row]);
        });
        std::int64_t answers = 0;
        for (const Turn& turn : chain.turns) {
          answers += turn.summary ? 0 : std::ssize(turn.tokens);
          summaries += turn.summary;
        }
        EXPECT_EQ(std::ssize(trained), answers);
        ++d;
      }
    }
  EXPECT_GT(summaries, 0u);
}

// With KL to a reference in rewards a token's return has its own cost and those of all tokens of the policy behind it, in later windows too: from one token
// to the next of its rollout the advantage grows by the first one's cost, over the deviation of the batch.
TEST_F(RolloutTest, CostsGoOnFromWindowToWindow) {
  player.right = 0.97;
  RlSettings settings;
  settings.environment = "lockbox";
  settings.compact_at = 72;
  settings.problems = 6;
  settings.rollouts = 2;
  settings.advantages = "batch-whitened";
  settings.kl_coefficient = 0.5;
  settings.kl_in = "reward";
  settings.kl = "k1";
  RolloutSource source(*lockbox, tokenizer, player);
  const auto reference = [](const std::vector<PolicyDatum>& data) {
    std::vector<std::vector<float>> all;
    std::size_t count = 0;
    for (const PolicyDatum& d : data) {
      std::vector<float>& own = all.emplace_back(d.old_logprobs);
      each_trained(d, [&](std::size_t row) { own[row] -= 0.125f * static_cast<float>(1 + count++ * 5 % 11); });
    }
    return all;
  };
  const StepBatch batch = step_batch(*lockbox, source, settings, 0, {.reference = reference});
  std::size_t d = 0, boundaries = 0;
  double deviation = 0;
  for (const RolloutGroup& group : batch.groups)
    for (const Rollout& rollout : group.rollouts) {
      double before = 0, cost = 0;
      bool first = true;
      for (std::size_t c = 0; c < rollout.chains.size(); ++c, ++d) {
        boundaries += c > 0;
        each_trained(batch.data[d], [&](std::size_t row) {
          const double advantage = static_cast<double>(batch.data[d].advantages[row]);
          if (!first) {
            if (deviation == 0) deviation = cost / (advantage - before);
            EXPECT_NEAR((advantage - before) * deviation, cost, 1e-4);
          }
          first = false;
          before = advantage;
          cost = 0.5 * static_cast<double>(batch.data[d].old_logprobs[row] - batch.data[d].reference_logprobs[row]);
        });
      }
    }
  EXPECT_GT(boundaries, 3u);
  EXPECT_GT(deviation, 0);
}

TEST_F(RolloutTest, PromptsAreSharedByFirstWindowsAlone) {
  player.right = 1;
  RlSettings settings;
  settings.environment = "lockbox";
  settings.compact_at = 72;
  settings.problems = 2;
  settings.rollouts = 2;
  settings.share_prompts = "backward";
  RolloutSource source(*lockbox, tokenizer, player);
  const StepBatch batch = step_batch(*lockbox, source, settings, 0);
  ASSERT_EQ(batch.data.size(), 16u);
  for (std::size_t d = 0; d < 16; ++d) {
    EXPECT_EQ(batch.data[d].prefix_group, d % 4 == 0 ? static_cast<std::int64_t>(d / 8) : -1);
    EXPECT_EQ(batch.data[d].shared_prefix, d % 4 == 0 ? std::ssize(player.requests[0].prompt) - 1 : 0);
  }
}

// "1," is taken back to "1", and "2" put in.
class CheckedEpisode : public Episode {
 public:
  explicit CheckedEpisode(std::vector<std::string>& seen) : seen_(seen) {}
  std::string task() const override { return "7:"; }
  std::string reference() const override { return "12"; }
  EpisodeStep step(std::string_view answer) override { return {.reward = answer == "12" ? 1.0 : 0.0, .done = true}; }
  std::vector<std::string> checked_at() const override { return {","}; }
  AnswerCheck check(std::string_view answer) override {
    seen_.emplace_back(answer);
    return {.kind = AnswerCheck::Kind::roll_back, .keep = 1, .put_in = "2"};
  }

 private:
  std::vector<std::string>& seen_;
};
struct CheckedEnvironment : Environment {
  std::string name() const override { return "checked"; }
  Problem problem(Split, std::uint64_t, std::uint64_t) const override { return {1, "7:", {}}; }
  std::unique_ptr<Episode> begin(const Problem&) const override { return std::make_unique<CheckedEpisode>(seen); }
  bool many_turns() const override { return false; }
  mutable std::vector<std::string> seen;
};
// Says "1,", is told how it goes on, and ends.
struct CheckedSampler : FakeSampler {
  using FakeSampler::FakeSampler;
  std::vector<SampleResult> sample(const std::vector<SampleRequest>& asked) override {
    std::vector<SampleResult> results;
    for (const SampleRequest& r : asked) {
      EXPECT_EQ(r.check->holds.strings, std::vector<std::string>{","});
      Hold hold{.number = 1, .found = ",", .tokens = tokenizer.encode("1,", false)};
      hold.position = std::ssize(hold.tokens);
      const HoldAction action = r.check->decide(hold);
      EXPECT_EQ(action.kind, HoldAction::Kind::roll_back);
      SampleResult result;
      result.tokens.assign(hold.tokens.begin(), hold.tokens.begin() + action.position);
      result.put_in.resize(result.tokens.size(), 0);
      for (const std::int32_t id : tokenizer.encode(action.text, false)) result.tokens.push_back(id), result.put_in.push_back(1);
      result.tokens.push_back(kTestEnd);
      result.put_in.push_back(0);
      result.sampling_logprobs.assign(result.tokens.size(), -1);
      result.finish = SampleFinish::stop;
      results.push_back(std::move(result));
    }
    return results;
  }
};

TEST_F(RolloutTest, AnEnvironmentChecksAnswersOnTheWay) {
  const CheckedEnvironment environment;
  CheckedSampler sampler(tokenizer);
  RolloutSource source(environment, tokenizer, sampler);
  const auto groups = source.sample({environment.problem(Split::train, 1, 0)}, {.samples = 2}, seed_of);
  EXPECT_EQ(environment.seen, (std::vector<std::string>{"1,", "1,"}));
  for (const Rollout& rollout : groups.at(0).rollouts) {
    EXPECT_EQ(rollout.reward, 1);
    ASSERT_EQ(rollout.chains.at(0).turns.size(), 2u);
    const std::vector<Turn>& turns = rollout.chains[0].turns;
    EXPECT_EQ(turns[0].tokens, tokenizer.encode("1", false));
    EXPECT_EQ(turns[1].shown, tokenizer.encode("2", false));
    EXPECT_EQ(turns[1].tokens, std::vector<std::int32_t>{kTestEnd});
    EXPECT_EQ(rollout.trained(), 2);
  }
}

// Played again up to any turn, with the noise it began with, a rollout becomes itself; with other noise it becomes another.
TEST_F(RolloutTest, AnInterruptedPlayGoesOnToTheSameRollout) {
  player.right = 0.97;
  RolloutSource source(*lockbox, tokenizer, player);
  const RolloutOptions options{.samples = 2, .compact_at = 72};
  const auto whole = source.sample(problems(8), options, seed_of);
  std::vector<Play> plays, others;
  std::size_t interrupted = 0;
  for (std::size_t g = 0; g < whole.size(); ++g)
    for (const Rollout& rollout : whole[g].rollouts) {
      std::vector<Turn> turns;
      for (const Chain& chain : rollout.chains) turns.insert(turns.end(), chain.turns.begin(), chain.turns.end());
      const std::size_t kept = g == 0 ? turns.size() : turns.size() * g / whole.size();  // the first ones are over
      for (std::vector<Play>* all : {&plays, &others}) {
        all->emplace_back(*lockbox, whole[g].problem, tokenizer, PlaySettings{.compact_at = 72});
        for (std::size_t t = 0; t < kept; ++t) all->back().take(turns[t]);
      }
      interrupted += kept > 0 && kept < turns.size();
    }
  EXPECT_GT(interrupted, 5u);
  const auto noise = [&](std::size_t k) { return PlayNoise{.seed = seed_of(k / 2), .sample = static_cast<std::int32_t>(k % 2)}; };
  EXPECT_EQ(source.play_on(plays, options, noise), std::vector<std::int64_t>(plays.size()));
  source.play_on(others, options, [&](std::size_t k) { return PlayNoise{.seed = noise(k).seed + 1000, .sample = noise(k).sample}; });
  std::size_t other = 0;
  for (std::size_t k = 0; k < plays.size(); ++k) {
    const Rollout &one = whole[k / 2].rollouts[k % 2], &again = plays[k].rollout();
    EXPECT_TRUE(plays[k].over());
    EXPECT_EQ(again.total_reward(), one.total_reward());
    ASSERT_EQ(again.chains.size(), one.chains.size());
    for (std::size_t c = 0; c < one.chains.size(); ++c) {
      const PolicyDatum a = policy_datum(one.chains[c], 1), b = policy_datum(again.chains[c], 1);
      EXPECT_EQ(a.tokens, b.tokens);
      EXPECT_EQ(a.targets, b.targets);
      EXPECT_EQ(a.old_logprobs, b.old_logprobs);
    }
    other += others[k].rollout().turns() != one.turns();
  }
  EXPECT_GT(other, 0u);
}

TEST_F(RolloutTest, TasksOfOneAnswerHaveNoWindows) {
  EXPECT_THROW(check_compact_at(72, false, "countdown"), Error);
  EXPECT_THROW(check_compact_at(-1, true, "lockbox"), Error);
  EXPECT_NO_THROW(check_compact_at(0, false, "countdown"));
  EXPECT_NO_THROW(check_compact_at(72, true, "lockbox"));
  EXPECT_TRUE(has_many_turns("lockbox"));
  EXPECT_FALSE(has_many_turns("countdown"));
  EXPECT_FALSE(has_many_turns("no such name"));
}

}  // namespace
}  // namespace lockstep
