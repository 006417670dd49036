// Which sharing of prompts is chosen where nobody said so.
#include "rl/shared_prompts.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "rl/rl_test_tools.h"

namespace lockstep {
namespace {

// Of the echo's problems, with a prompt as long as is asked for.
class LongPrompts : public EchoEnvironment {
 public:
  explicit LongPrompts(std::int64_t characters) : characters_(characters) {}
  Problem problem(Split split, std::uint64_t seed, std::uint64_t index) const override {
    Problem made = EchoEnvironment::problem(split, seed, index);
    made.prompt = std::string(static_cast<std::size_t>(characters_), '=');
    return made;
  }

 private:
  std::int64_t characters_;
};

RlSettings group(std::int64_t rollouts, std::int64_t max_tokens) {
  RlSettings s;
  s.problems = 3;
  s.rollouts = rollouts;
  s.max_tokens = max_tokens;
  return s;
}

TEST(SharedPrompts, RowsAreCountedAsAStepHasThem) {
  const PromptRows rows = prompt_rows(group(4, 100), {300, 256, 255});
  EXPECT_EQ(rows.all, 4 * (299 + 255 + 254 + 3 * 100));
  EXPECT_EQ(rows.saved, 3 * (299 + 255));  // a prompt below 256 tokens saves nothing
  EXPECT_EQ(prompt_rows(group(4, 100), {}).share(), 0);
  EXPECT_EQ(prompt_rows(group(1, 100), {300}).saved, 0);  // one rollout shares with nobody
}

// A quarter of the rows: with 2 rollouts of a prompt of 257 tokens, 256 of 2 x (256 + answer) are saved, so answers of 256 tokens are the most.
TEST(SharedPrompts, TheBackwardIsSharedWhereItSavesAQuarterOfTheRows) {
  const Tokenizer tokenizer = countdown_tokenizer();
  const LongPrompts prompts(257);
  ASSERT_EQ(std::ssize(tokenizer.encode(prompts.problem(Split::train, 1, 0).prompt, false)), 257);
  EXPECT_EQ(sharing_of(group(2, 256), prompts, tokenizer), SharePrompts::backward);
  EXPECT_EQ(sharing_of(group(2, 257), prompts, tokenizer), SharePrompts::forward);
  EXPECT_EQ(sharing_of(group(8, 257), prompts, tokenizer), SharePrompts::backward);
  RlSettings later = group(8, 64);
  later.share_prompts_from = 258;
  EXPECT_EQ(sharing_of(later, prompts, tokenizer), SharePrompts::forward);
  EXPECT_EQ(sharing_of(group(8, 16), LongPrompts(255), tokenizer), SharePrompts::forward);
  EXPECT_EQ(sharing_of(group(8, 16), LongPrompts(256), tokenizer), SharePrompts::backward);
}

TEST(SharedPrompts, WhatIsSaidStandsAndTheDemoIsAsPublished) {
  const Tokenizer tokenizer = countdown_tokenizer();
  for (const SharePrompts said : {SharePrompts::off, SharePrompts::forward, SharePrompts::backward}) {
    RlSettings s = group(8, 16);
    s.share_prompts = to_string(said);
    EXPECT_EQ(sharing_of(s, LongPrompts(2000), tokenizer), said);
    EXPECT_EQ(sharing_of(s, LongPrompts(2), tokenizer), said);
  }
  EXPECT_EQ(sharing_of(RlSettings{}, *make_environment("countdown"), tokenizer), SharePrompts::forward);
  RlSettings turns = group(8, 12);
  turns.share_prompts_from = 2;
  EXPECT_EQ(sharing_of(turns, *make_environment("countdown"), tokenizer), SharePrompts::backward);
  EXPECT_EQ(sharing_of(turns, *make_environment("lockbox"), tokenizer), SharePrompts::forward);  // nobody knows how many turns
}

TEST(SharedPrompts, RolloutsThatShareTheirPromptFitIntoAMicroBatch) {
  const RlSettings s = group(8, 16);
  for (const std::int64_t micro_batch : {0, 8, 9}) EXPECT_NO_THROW(check_sharing(SharePrompts::backward, s, micro_batch)) << micro_batch;
  for (const SharePrompts apart : {SharePrompts::automatic, SharePrompts::off, SharePrompts::forward}) EXPECT_NO_THROW(check_sharing(apart, s, 1));
  try {
    check_sharing(SharePrompts::backward, s, 7);
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("micro_batch is 7, and the 8 rollouts"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace lockstep
