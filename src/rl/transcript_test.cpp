#include "rl/transcript.h"

#include <gtest/gtest.h>

#include <cstring>

#include "rl/lockbox_test_tools.h"
#include "rl/policy_training.h"

namespace lockstep {
namespace {

struct TranscriptTest : GameTest {
  std::vector<nlohmann::ordered_json> lines(std::int64_t count) {
    std::vector<nlohmann::ordered_json> result;
    PolicyTraining training(environment, tokenizer, sampler, trainer, settings);
    training.step(3, optimizer_step(settings, 1e-3), [&](const StepRollouts& s) { result = transcripts_of(s, tokenizer, count); });
    return result;
  }
};

TEST_F(TranscriptTest, SaysWhatWasSampledAndTrained) {
  const auto found = lines(100);
  ASSERT_EQ(found.size(), 4u);  // one group
  const std::size_t group = found[0]["group"];
  for (std::size_t j = 0; j < 4; ++j) {
    const auto& line = found[j];
    const PolicyDatum& datum = trainer.data[group * 4 + j];
    EXPECT_EQ(line["step"], 4);
    EXPECT_EQ(line["rollout"], j);
    const std::vector<std::int32_t> prompt = line["prompt_ids"], ids = line["ids"];
    std::vector<std::int32_t> all = prompt;
    all.insert(all.end(), ids.begin(), ids.end() - 1);
    EXPECT_EQ(all, datum.tokens);
    std::string text;
    for (const auto& piece : line["tokens"]) text += piece.get<std::string>();
    EXPECT_EQ(text, tokenizer.decode(ids, false));
    const std::size_t first = prompt.size() - 1;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const float logprob = static_cast<float>(line["sampling_logprobs"][i].get<double>());
      EXPECT_EQ(std::memcmp(&logprob, &datum.old_logprobs[first + i], sizeof logprob), 0);  // the bits come back
      EXPECT_EQ(static_cast<float>(line["advantages"][i].get<double>()), datum.advantages[first + i]);
      EXPECT_EQ(line["weights"][i], 1.0);
    }
    EXPECT_EQ(line["logprobs"].size(), ids.size());
    for (const char* key : {"cut", "chain", "turns", "values"}) EXPECT_FALSE(line.contains(key)) << key;
  }
}

// A line a context window: what the policy wrote has numbers, what it was shown has none, and turns say which is which.
TEST_F(TranscriptTest, ShowsTurnsAndWindows) {
  const auto lockbox = make_environment("lockbox");
  LockboxPlayer player(tokenizer);
  player.right = 0.99;
  FakeTrainer own(player);
  settings.environment = "lockbox";
  settings.compact_at = 72;
  settings.problems = 3;
  std::vector<nlohmann::ordered_json> found;
  std::vector<PolicyDatum> data;
  std::size_t first = 0;
  PolicyTraining training(*lockbox, tokenizer, player, own, settings);
  training.step(0, optimizer_step(settings, 1e-3), [&](const StepRollouts& s) {
    found = transcripts_of(s, tokenizer, 100);
    data = s.data;
    ASSERT_FALSE(found.empty());
    for (std::size_t g = 0; g < found[0]["group"].get<std::size_t>(); ++g)
      for (const Rollout& rollout : s.groups[g].rollouts) first += rollout.chains.size();
  });
  std::size_t rollout = 0, chain = 0, summaries = 0;
  for (std::size_t l = 0; l < found.size(); ++l) {
    const auto& line = found[l];
    const PolicyDatum& datum = data[first + l];
    EXPECT_EQ(line["rollout"], rollout);
    if (!line.contains("turns")) {  // its first key was wrong: as a rollout of one answer
      EXPECT_FALSE(line.contains("chain"));
      ++rollout;
      continue;
    }
    EXPECT_EQ(line["chain"], chain);
    const std::vector<std::int32_t> prompt = line["prompt_ids"], ids = line["ids"];
    std::vector<std::int32_t> all = prompt;
    all.insert(all.end(), ids.begin(), ids.end() - 1);
    EXPECT_EQ(all, datum.tokens);
    std::vector<bool> written(ids.size());
    double reward = 0;
    for (const auto& turn : line["turns"]) {
      for (std::size_t i = turn["begin"]; i < turn["end"].get<std::size_t>(); ++i) written[i] = true;
      EXPECT_EQ(ids[turn["end"].get<std::size_t>() - 1], kTestEnd);
      summaries += turn["kind"] == "summary";
      reward += turn["reward"].get<double>();
    }
    EXPECT_EQ(line["turns"][0]["begin"], 0);
    EXPECT_EQ(line["turns"].back()["end"], ids.size());
    for (std::size_t i = 0; i < ids.size(); ++i) {
      EXPECT_EQ(line["weights"][i], written[i] ? 1.0 : 0.0);
      for (const char* key : {"sampling_logprobs", "logprobs", "entropies", "advantages"}) EXPECT_EQ(line[key][i].is_null(), !written[i]) << key;
    }
    const bool last = chain + 1 == line["chains"].get<std::size_t>();
    EXPECT_EQ(reward, last ? line["reward"].get<double>() : 0.0);
    chain = last ? 0 : chain + 1;
    rollout += last;
  }
  EXPECT_EQ(rollout, 4u);
  EXPECT_GT(summaries, 0u);
}

TEST_F(TranscriptTest, TakesAGroupThatTeachesAndNoMoreThanAsked) {
  EXPECT_TRUE(lines(0).empty());
  const auto found = lines(2);
  ASSERT_EQ(found.size(), 2u);
  const std::size_t group = found[0]["group"];
  const auto spread = [&](std::size_t g) {
    for (std::size_t j = 0; j < 4; ++j)
      if (trainer.data[g * 4 + j].advantages.back() != 0) return true;
    return false;
  };
  for (std::size_t g = 0; g < group; ++g) EXPECT_FALSE(spread(g));
}

TEST_F(TranscriptTest, LongOnesAreCut) {
  RolloutGroup group;
  Turn turn;
  turn.shown.assign(5000, 40);
  turn.tokens.assign(4100, 41);
  turn.sampling_logprobs.assign(4100, -0.25f);
  group.rollouts = {Rollout{.chains = {{{turn}}}}};
  const std::vector<PolicyDatum> data = {policy_datum(group.rollouts[0].chains[0], 1)};
  PolicyResult result;
  result.logprobs.assign(1, std::vector<float>(9100, -1.0f));
  result.entropies = result.logprobs;
  const std::vector<RolloutGroup> groups = {group};
  const auto line = transcripts_of({0, 7, groups, data, result, {}}, tokenizer, 1).at(0);
  EXPECT_EQ(line["tokens"].size(), 4096u);
  EXPECT_EQ(line["prompt"].size(), 4096u);
  EXPECT_EQ(line["cut"], 5000 - 4096 + 4100 - 4096);
  EXPECT_EQ(line["weights_version"], 7);
}

}  // namespace
}  // namespace lockstep
