#include "host/loss_inputs.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"

namespace lockstep {
namespace {
constexpr BatchLimits kLimits{100, 16};

NamedTensor integer_tensor(std::vector<std::int64_t> values, std::vector<std::int64_t> shape = {}) {
  NamedTensor tensor;
  tensor.is_float = false;
  tensor.shape = shape.empty() ? std::vector<std::int64_t>{static_cast<std::int64_t>(values.size())} : shape;
  tensor.integers = std::move(values);
  return tensor;
}
NamedTensor float_tensor(std::vector<float> values) {
  NamedTensor tensor;
  tensor.shape = {static_cast<std::int64_t>(values.size())};
  tensor.floats = std::move(values);
  return tensor;
}
TrainingBatch batch_of(const std::string& loss, std::map<std::string, NamedTensor> more = {}) {
  TrainingDatum datum{{1, 2, 3}, {{"target_tokens", integer_tensor({2, 3, 4})}}};
  datum.inputs.merge(more);
  return {{datum}, {loss, {}}};
}
std::string refusal_of(const TrainingBatch& batch) {
  try {
    prepare_batch(batch, kLimits);
  } catch (const Error& e) {
    return e.what();
  }
  return "taken";
}

TEST(LossInputs, WithoutWeightsEveryTargetCounts) {
  const PreparedBatch batch = prepare_batch(batch_of("cross_entropy"), kLimits);
  EXPECT_EQ(batch.sequences[0].weights, (std::vector<float>{1, 1, 1}));
  EXPECT_EQ(batch.loss.normaliser, 1);
}

TEST(LossInputs, TheSdksMeanDifferentDefaults) {
  TrainingBatch batch = batch_of("cispo", {{"logprobs", float_tensor({0, 0, 0})}, {"advantages", float_tensor({1, 1, 1})}});
  EXPECT_EQ(prepare_batch(batch, kLimits).loss.parameters.clip_high, 4.0f);
  batch.loss.dialect = LossDialect::fireworks;
  EXPECT_EQ(prepare_batch(batch, kLimits).loss.parameters.clip_high, 1.28f);
  batch.loss.config["clip_high_threshold"] = 3.0;
  EXPECT_EQ(prepare_batch(batch, kLimits).loss.parameters.clip_high, 3.0f);
}

// kept_tokens and temperature: what the log-probabilities of a batch are of.
TEST(LossInputs, TheSamplingSupportIsTaken) {
  const auto of = [](std::vector<std::int64_t> kept, std::vector<std::int64_t> shape, const char* support = "sampling_support") {
    TrainingBatch batch = batch_of("cross_entropy", {{"kept_tokens", integer_tensor(std::move(kept), std::move(shape))}});
    batch.loss.config["target_logprob_support"] = std::string(support);
    batch.loss.config["temperature"] = 0.7;
    return batch;
  };
  TrainingBatch batch = of({9, 2, -1, -1, 4, -1}, {3, 2});
  const TrainSequence taken = prepare_batch(batch, kLimits).sequences[0];
  EXPECT_EQ(taken.temperature, 0.7f);
  ASSERT_EQ(taken.kept_tokens.size(), 3u);
  EXPECT_EQ(taken.kept_tokens[0].ids(), (std::vector<std::int32_t>{2, 9}));
  EXPECT_EQ(taken.kept_tokens[0].order, KeptTokens::Order::by_rank);
  EXPECT_FALSE(taken.kept_tokens[1].cut());
  EXPECT_EQ(taken.kept_tokens[2].ids(), (std::vector<std::int32_t>{4}));
  batch.data[0].inputs["kept_by_rank"] = integer_tensor({0, 1, 1});
  EXPECT_EQ(prepare_batch(batch, kLimits).sequences[0].kept_tokens[0].order, KeptTokens::Order::by_id);
  EXPECT_EQ(prepare_batch(batch_of("cross_entropy"), kLimits).sequences[0].temperature, 1.0f);

  EXPECT_NE(refusal_of(of({2, 3, 4}, {3, 1}, "full_vocabulary")).find("kept_tokens is given and target_logprob_support is full_vocabulary"), std::string::npos);
  EXPECT_NE(refusal_of(of({2, 3, 4}, {3, 1}, "sampling_suport")).find("did you mean 'sampling_support'"), std::string::npos);
  EXPECT_NE(refusal_of(of({2, 3, 4}, {3})).find("kept_tokens has shape [3], allowed is [3, M]"), std::string::npos);
  EXPECT_NE(refusal_of(of({2, 3, 100}, {3, 1})).find("kept_tokens[2] is 100, allowed are ids from 0 to 99"), std::string::npos);
  EXPECT_NE(refusal_of(of({2, 2, 3, 4, 4, 5}, {3, 2})).find("has token 2 twice in row 0"), std::string::npos);
  EXPECT_EQ(refusal_of(of({2, 5, 4}, {3, 1})), "sequence 0: target 1 is token 3, which is not among its 1 kept tokens");
  batch.data[0].inputs["kept_by_rank"] = integer_tensor({0, 1});
  EXPECT_NE(refusal_of(batch).find("kept_by_rank has shape [2], allowed is [3], one a token"), std::string::npos);
  batch.data[0].inputs["kept_by_rank"] = integer_tensor({});  // no default
  EXPECT_NE(refusal_of(batch).find("kept_by_rank has shape [0], allowed is [3]"), std::string::npos);
  batch.data[0].inputs.erase("kept_tokens");
  EXPECT_NE(refusal_of(batch).find("kept_by_rank is given without kept_tokens"), std::string::npos);
  TrainingBatch hot = batch_of("cross_entropy");
  hot.loss.config["temperature"] = 0.0;
  EXPECT_EQ(refusal_of(hot), "temperature is 0, allowed are numbers from 0.000001 to 100");
}

TEST(LossInputs, WhatIsWrongIsNamed) {
  EXPECT_EQ(refusal_of(batch_of("ppo")), "data[0].loss_fn_inputs has no logprobs and no advantages, which the loss ppo needs");
  EXPECT_NE(refusal_of(batch_of("ppq")).find("did you mean 'ppo'"), std::string::npos);
  EXPECT_NE(refusal_of(batch_of("cross_entropy", {{"weight", float_tensor({1, 1, 1})}})).find("did you mean 'weights'"), std::string::npos);
  EXPECT_EQ(refusal_of(batch_of("cross_entropy", {{"weights", float_tensor({1, 1})}})),
            "data[0].loss_fn_inputs.weights has shape [2], allowed is [3], the shape of target_tokens");
  EXPECT_EQ(refusal_of(batch_of("cross_entropy", {{"weights", float_tensor({1, NAN, 1})}})), "data[0].loss_fn_inputs.weights[1] is not a finite number");
  EXPECT_EQ(refusal_of(batch_of("cross_entropy", {{"mask", float_tensor({0, 1, 1})}, {"weights", float_tensor({0, 1, 1})}})),
            "data[0].loss_fn_inputs has mask and weights, which are one input by two names; allowed is one of them");
  TrainingBatch batch = batch_of("cross_entropy");
  batch.data[0].tokens[1] = 100;
  EXPECT_EQ(refusal_of(batch), "data[0].model_input token 1 is 100, allowed are ids from 0 to 99");
  batch.data[0] = {std::vector<std::int32_t>(17, 1), {{"target_tokens", integer_tensor(std::vector<std::int64_t>(17, 1))}}};
  EXPECT_EQ(refusal_of(batch), "data[0].model_input has 17 tokens, allowed is 1 to 16");
  batch.data.clear();
  EXPECT_EQ(refusal_of(batch), "data is empty, allowed is at least one datum");
}

TEST(LossInputs, RoutingMatricesAreOneAToken) {
  constexpr BatchLimits kExperts{100, 16, {2, 2, 8}};
  const auto prepared = [&](const BatchLimits& limits, std::vector<std::string> matrices) {
    TrainingBatch batch = batch_of("cross_entropy");
    batch.data[0].routing_matrices = std::move(matrices);
    return prepare_batch(batch, limits).sequences[0].experts;
  };
  EXPECT_EQ(prepared(kExperts, {"", "AQUABw==", ""}), (std::vector<std::int32_t>{-1, -1, -1, -1, 1, 5, 0, 7, -1, -1, -1, -1}));
  for (const BatchLimits& limits : {kExperts, kLimits}) {  // a model without experts too
    EXPECT_TRUE(prepared(limits, {}).empty());
    EXPECT_TRUE(prepared(limits, {"", "", ""}).empty());
  }
  const auto refusal = [&](const BatchLimits& limits, std::vector<std::string> matrices) -> std::string {
    try {
      prepared(limits, std::move(matrices));
    } catch (const Error& e) {
      return e.what();
    }
    return "taken";
  };
  EXPECT_EQ(refusal(kExperts, {"", ""}), "data[0].model_input.routing_matrices has 2 texts, allowed is one a token, 3");
  EXPECT_EQ(refusal(kExperts, {"", "", "AQEABw=="}), "data[0].model_input.routing_matrices[2] names expert 1 twice in sparse layer 0, allowed is once");
  EXPECT_EQ(refusal(kLimits, {"", "AQUABw==", ""}), "data[0].model_input.routing_matrices[1] names experts, and the model has none; allowed is \"\"");
}

TEST(LossInputs, SeveralTargetsAPosition) {
  TrainingBatch batch = batch_of("cross_entropy");
  batch.data[0].inputs["target_tokens"] = integer_tensor({2, 3, 3, 4, 4, 5}, {3, 2});
  const PreparedBatch prepared = prepare_batch(batch, kLimits);
  EXPECT_EQ(prepared.sequences[0].targets_per_row, 2);
  EXPECT_EQ(prepared.shapes[0], (std::vector<std::int64_t>{3, 2}));
}

}  // namespace
}  // namespace lockstep
