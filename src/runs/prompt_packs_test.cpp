// Sequences of one prompt stay together, declare it, and are counted.
#include "runs/prompt_packs.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "base/error.h"

namespace lockstep {
namespace {

// A prompt of `prompt` tokens with an answer of 3 more.
TrainSequence answer(std::int32_t of, std::int64_t prompt, std::int32_t own) {
  WeightedTokens tokens;
  for (std::int64_t i = 0; i < prompt; ++i) tokens.tokens.push_back(of);
  for (std::int32_t i = 0; i < 3; ++i) tokens.tokens.push_back(100 + own);
  tokens.weights.assign(tokens.tokens.size(), 1.0f);
  std::fill_n(tokens.weights.begin(), prompt, 0.0f);
  return train_sequence(tokens);
}

std::vector<TrainSequence> data() {
  std::vector<TrainSequence> sequences;
  for (std::int32_t own = 0; own < 4; ++own)
    for (std::int32_t of = 1; of <= 3; ++of) sequences.push_back(answer(of, 10, 4 * of + own));
  return sequences;
}

TEST(PromptPacks, AnEpochHasEverySequenceOnceAndPromptsTogether) {
  const auto packed = packed_source(data(), 7), plain = shuffled_source(data(), 7);
  EXPECT_EQ(packed->size(), 12);
  EXPECT_EQ(packed->digest(), plain->digest());
  std::set<std::vector<std::int32_t>> orders;
  for (std::int64_t epoch = 0; epoch < 4; ++epoch) {
    std::multiset<std::int32_t> answers;
    std::vector<std::int32_t> order;
    for (std::int64_t step = 3 * epoch; step < 3 * epoch + 3; ++step)
      for (const TrainSequence& s : packed->batch(step, 4)) {
        answers.insert(s.tokens.back());
        order.push_back(s.tokens[0]);
        EXPECT_EQ(s.tokens[0], packed->batch(step, 4)[0].tokens[0]);  // a pack of four fills a batch of four
      }
    EXPECT_EQ(answers.size(), 12u);
    EXPECT_EQ(std::set<std::int32_t>(answers.begin(), answers.end()).size(), 12u);
    orders.insert(order);
  }
  EXPECT_GT(orders.size(), 1u);  // packs are shuffled
}

TEST(PromptPacks, ABatchDeclaresWhatItHasMoreThanOnce) {
  std::vector<TrainSequence> batch = {answer(1, 10, 0), answer(2, 10, 1), answer(1, 10, 2), answer(1, 9, 3)};
  const std::vector<TrainSequence> before = batch;
  declare_prompts(batch);
  for (const std::size_t s : {0, 2}) {
    EXPECT_EQ(batch[s].prefix_group, 0);
    EXPECT_EQ(batch[s].shared_prefix, 9);  // the prompt's last token predicts
    for (std::size_t i = 0; i < batch[s].targets.size(); ++i) EXPECT_EQ(batch[s].targets[i], i < 9 ? -1 : before[s].targets[i]);
  }
  for (const std::size_t s : {1, 3}) {
    EXPECT_EQ(batch[s].shared_prefix, 0);
    EXPECT_EQ(batch[s].targets, before[s].targets);
  }
}

TEST(PromptPacks, APairDeclaresWhatItBeginsWithAlone) {
  // Two pairs of one prompt; a pair of which one answer begins earlier; two equal answers whose last token alone has a weight.
  std::vector<TrainSequence> batch = {answer(1, 10, 0), answer(1, 10, 1), answer(1, 10, 2), answer(1, 10, 3), answer(1, 10, 4), answer(1, 6, 5)};
  for (std::int32_t own : {6, 6}) {
    batch.push_back(answer(1, 10, own));
    batch.back().targets.assign(batch.back().tokens.size(), -1), batch.back().targets.back() = 5;
    batch.back().weights.assign(batch.back().tokens.size(), 0.0f), batch.back().weights.back() = 1;
  }
  const std::vector<TrainSequence> before = batch;
  declare_pairs(batch);
  const std::vector<std::int64_t> groups{0, 0, 2, 2, 4, 4, 6, 6}, shared{9, 9, 9, 9, 5, 5, 11, 11};
  for (std::size_t s = 0; s < batch.size(); ++s) {
    EXPECT_EQ(batch[s].prefix_group, groups[s]) << s;
    EXPECT_EQ(batch[s].shared_prefix, shared[s]) << s;
    for (std::size_t i = 0; i < batch[s].targets.size(); ++i)
      EXPECT_EQ(batch[s].targets[i], static_cast<std::int64_t>(i) < shared[s] ? -1 : before[s].targets[i]) << s << " " << i;
  }
  std::vector<TrainSequence> strangers = {answer(1, 10, 0), answer(2, 10, 0)};
  declare_pairs(strangers);
  EXPECT_EQ(strangers[0].prefix_group, -1);
  EXPECT_EQ(strangers[1].shared_prefix, 0);
}

TEST(PromptPacks, SavedRowsAreThoseOfBatches) {
  const auto packed = packed_source(data(), 7);
  const PackedRows whole = packed_rows(*packed, 4, 10), halves = packed_rows(*packed, 2, 10);
  EXPECT_EQ(whole.all, 12 * 12);
  EXPECT_EQ(whole.saved, 3 * 3 * 9);
  EXPECT_EQ(halves.saved, 6 * 1 * 9);
  EXPECT_EQ(packed_rows(*packed, 4, 11).saved, 0);
  EXPECT_EQ(packed_rows(*shuffled_source(data(), 7), 4, 1).saved, 0);  // declares nothing
}

TEST(PromptPacks, WhatSharesAPromptFitsIntoAMicroBatch) {
  const auto packed = packed_source(data(), 7);  // four of each prompt
  const PackedRows rows = packed_rows(*packed, 4, 10);
  EXPECT_EQ(rows.most_together, 4);
  EXPECT_EQ(packed_rows(*packed, 2, 10).most_together, 2);
  EXPECT_EQ(packed_rows(*packed, 4, 11).most_together, 4);  // too short to be counted as saved, and shared nevertheless
  for (const std::int64_t micro_batch : {0, 4, 12}) EXPECT_NO_THROW(check_packs(rows, micro_batch)) << micro_batch;
  EXPECT_NO_THROW(check_packs(packed_rows(*shuffled_source(data(), 7), 12, 10), 1));  // nothing is declared
  try {
    check_packs(rows, 3);
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("micro_batch is 3, and more lines of one prompt"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace lockstep
