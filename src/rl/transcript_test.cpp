#include "rl/transcript.h"

#include <gtest/gtest.h>

#include <cstring>

#include "rl/policy_training.h"
#include "rl/rl_test_tools.h"

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
    EXPECT_FALSE(line.contains("cut"));
  }
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
  group.prompt.assign(5000, 40);
  Rollout rollout;
  rollout.tokens.assign(4100, 41);
  rollout.sampling_logprobs.assign(4100, -0.25f);
  group.rollouts = {rollout};
  const std::vector<PolicyDatum> data = {policy_datum(group.prompt, rollout, std::vector<float>(rollout.tokens.size(), 0.5f))};
  PolicyResult result;
  result.logprobs.assign(1, std::vector<float>(9100, -1.0f));
  result.entropies = result.logprobs;
  const std::vector<RolloutGroup> groups = {group};
  const auto line = transcripts_of({0, 7, groups, data, result}, tokenizer, 1).at(0);
  EXPECT_EQ(line["tokens"].size(), 4096u);
  EXPECT_EQ(line["prompt"].size(), 4096u);
  EXPECT_EQ(line["cut"], 5000 - 4096 + 4100 - 4096);
  EXPECT_EQ(line["weights_version"], 7);
}

}  // namespace
}  // namespace lockstep
