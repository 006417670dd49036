// Losses over log-probabilities whose derivatives fp32 does not hold: refused by their datum before the batch begins, so that what was added up before stays.
#include <gtest/gtest.h>

#include "host/training_test_tools.h"

namespace lockstep {
namespace {

// A chosen answer and a rejected one, whose derivatives are about `beta` times their weights.
TrainingBatch heavy_pair(double beta, float weight) {
  TrainingBatch batch = training_batch(11, 2);
  batch.loss.name = "dpo";
  batch.loss.config["beta"] = beta;
  for (TrainingDatum& datum : batch.data) {
    const NamedTensor& targets = datum.inputs.at("target_tokens");
    NamedTensor numbers{.shape = targets.shape, .floats = std::vector<float>(targets.integers.size(), 0.0f), .integers = {}, .is_float = true};
    datum.inputs["reference_logprobs"] = numbers;
    numbers.floats.assign(numbers.floats.size(), 1.0f);
    datum.inputs["weights"] = numbers;
  }
  batch.data[0].inputs["weights"].floats[0] = weight;
  return batch;
}

TEST(BatchLossNumbers, ADerivativeBeyondFp32LeavesEarlierGradients) {
  std::vector<std::string> norms;
  for (const bool refused : {false, true}) {
    TrainingBench bench;
    const std::string model = bench.model(bench.session(), 0, 0);
    std::int64_t number = 1;
    ASSERT_FALSE(bench.result(bench.batch(model, number++, training_batch(5, 3))).failed());
    if (refused) {
      const Outcome outcome = bench.result(bench.batch(model, number++, heavy_pair(1e6, 1e38f)));
      EXPECT_TRUE(outcome.failed());
      EXPECT_NE(outcome.message.find("data[0]: the loss's derivative"), std::string::npos) << outcome.message;
    }
    const Outcome stepped = bench.result(bench.step(model, number));
    EXPECT_FALSE(stepped.failed()) << stepped.message;
    norms.push_back(stepped.bytes);
  }
  EXPECT_EQ(norms[0], norms[1]);
}

TEST(BatchLossNumbers, LargeDerivativesThatFp32HoldsAreTaken) {
  TrainingBench bench;
  const std::string model = bench.model(bench.session(), 0, 0);
  const Outcome outcome = bench.result(bench.batch(model, 1, heavy_pair(10, 1000.0f)));
  EXPECT_FALSE(outcome.failed()) << outcome.message;
}

}  // namespace
}  // namespace lockstep
