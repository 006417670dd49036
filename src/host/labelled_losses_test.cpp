// KTO over a client's labelled answers: mismatched ones are scored before all others, in pieces or at once, over ranks and wherever they stand, to the
// same bits.
#include <gtest/gtest.h>

#include <algorithm>

#include "host/training_test_tools.h"

namespace lockstep {
namespace {

TrainingBatch labelled_batch(std::uint64_t seed, const std::vector<std::int64_t>& labels) {
  TrainingBatch batch = training_batch(seed, static_cast<int>(labels.size()));
  batch.loss.name = "kto";
  for (std::size_t d = 0; d < labels.size(); ++d) {
    TrainingDatum& datum = batch.data[d];
    datum.inputs["label"] = NamedTensor{.shape = {1}, .floats = {}, .integers = {labels[d]}, .is_float = false};
    // Less likely than a random model makes them: the shift is above 0.
    datum.inputs["reference_logprobs"] =
        NamedTensor{.shape = {std::ssize(datum.tokens)}, .floats = std::vector<float>(datum.tokens.size(), -9.0f), .integers = {}, .is_float = true};
  }
  return batch;
}

TEST(LabelledLosses, PiecesAndRanksHaveTheBitsOfTheWhole) {
  struct Way {
    std::int64_t tokens;  // a piece
    RankLayout ranks = {};
  };
  for (const std::int64_t rank : {0, 8}) {
    std::vector<std::string> bits;
    for (const Way& way : {Way{4096}, {20}, {20, {2, 1, 1}}, {4096, {1, 2, 1}}}) {
      TrainingBench bench({.tokens_a_step = way.tokens, .turn_seconds = 0}, {.threads = 1}, {}, way.ranks);
      const std::string model = bench.model(bench.session(), 0, rank);
      const std::string batch = bench.batch(model, 1, labelled_batch(1, {-1, 1, -1, 0, 1, -1, -1, 0})), step = bench.step(model, 2);
      std::string told;
      for (const std::string& request : {batch, step, bench.batch(model, 3, labelled_batch(2, {1, 0, -1, -1, -1}))}) {
        const Outcome outcome = bench.result(request);
        ASSERT_FALSE(outcome.failed()) << outcome.message;
        told += outcome.bytes;
      }
      bits.push_back(told);
      EXPECT_EQ(bits.back(), bits.front()) << "pieces of " << way.tokens << " tokens, " << way.ranks.text();
    }
    EXPECT_NE(bits[0].find("shift:mean=0x1."), std::string::npos) << "the shift is 0, so nothing is compared";
  }
}

TEST(LabelledLosses, InputsThatItDoesNotReadAreRefused) {
  TrainingBench bench;
  const std::string model = bench.model(bench.session(), 0, 2);
  std::int64_t number = 0;
  for (const std::string loss : {"kto", "dpo"}) {
    TrainingBatch batch = labelled_batch(1, {-1, 1});
    batch.loss.name = loss;
    for (TrainingDatum& datum : batch.data)
      if (loss == "dpo") datum.inputs.erase("label");
    EXPECT_FALSE(bench.result(bench.batch(model, ++number, batch)).failed()) << loss;
    batch.data[1].inputs["advantages"] = batch.data[1].inputs["reference_logprobs"];
    const std::string said = bench.result(bench.batch(model, ++number, batch)).message;
    EXPECT_NE(said.find("data[1].loss_fn_inputs.advantages is nothing that the loss " + loss + " takes, allowed are target_tokens, weights, mask"),
              std::string::npos)
        << said;
  }
  TrainingBatch batch = labelled_batch(1, {-1, 1});  // of a loss that compares with no reference
  batch.loss.name = "simpo";
  for (TrainingDatum& datum : batch.data) datum.inputs.erase("label");
  const std::string said = bench.result(bench.batch(model, ++number, batch)).message;
  EXPECT_NE(said.find("data[0].loss_fn_inputs.reference_logprobs is nothing that the loss simpo takes, allowed are target_tokens, weights, mask"),
            std::string::npos)
      << said;
}

TEST(LabelledLosses, WhereMismatchedAnswersStandChangesNothing) {
  std::vector<std::string> gradients;
  for (const bool last : {false, true}) {
    TrainingBench bench;
    const std::string model = bench.model(bench.session(), 0, 8);
    TrainingBatch batch = labelled_batch(1, {1, -1, 0, -1});
    if (last) std::swap(batch.data[1], batch.data[2]);
    const Outcome computed = bench.result(bench.batch(model, 1, batch));
    ASSERT_FALSE(computed.failed()) << computed.message;
    const Outcome stepped = bench.result(bench.step(model, 2));
    ASSERT_FALSE(stepped.failed()) << stepped.message;
    gradients.push_back(stepped.bytes + computed.bytes.substr(computed.bytes.find("accuracy:mean")));
  }
  EXPECT_EQ(gradients[0], gradients[1]);
}

}  // namespace
}  // namespace lockstep
