// The option share_prompts of losses over log-probabilities (host/batch_loss.h), of critics, and of several targets a row: the gradient of declared prompts,
// whole and in pieces, and a checkpoint that says so.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>

#include "base/file.h"
#include "host/batch_loss.h"
#include "host/shared_prompts.h"
#include "host/shared_prompts_test_tools.h"
#include "train/declared_prompts.h"
#include "train/trainer.h"

namespace lockstep {
namespace {

NamedTensor numbers(std::size_t count, float value) {
  return {.shape = {static_cast<std::int64_t>(count)}, .floats = std::vector<float>(count, value), .integers = {}, .is_float = true};
}

// Two of one prompt: each is a group of its own.
TrainingBatch pairs() {
  TrainingBatch batch = answers({1, 1, 1, 1, 2, 2});
  batch.loss.name = "simpo";
  return batch;
}
TrainingBatch labelled() {
  const std::vector<std::int64_t> labels = {1, 0, -1, 1, -1, 0, 1};
  TrainingBatch batch = answers({1, 1, 9, 1, 8, 2, 2});
  batch.loss.name = "kto";
  for (std::size_t d = 0; d < labels.size(); ++d) {
    std::map<std::string, NamedTensor>& inputs = batch.data[d].inputs;
    inputs["label"] = NamedTensor{.shape = {1}, .floats = {}, .integers = {labels[d]}, .is_float = false};
    inputs["reference_logprobs"] = numbers(batch.data[d].tokens.size(), -3);
  }
  return batch;
}
// Of each row a second target.
TrainingBatch of_two_targets(TrainingBatch batch) {
  for (TrainingDatum& datum : batch.data)
    for (const char* name : {"target_tokens", "weights"}) {
      NamedTensor& tensor = datum.inputs[name];
      NamedTensor doubled = tensor;
      doubled.shape = {tensor.shape[0], 2}, doubled.floats.clear(), doubled.integers.clear();
      for (const float weight : tensor.floats) doubled.floats.insert(doubled.floats.end(), 2, weight);
      for (const std::int64_t token : tensor.integers) doubled.integers.insert(doubled.integers.end(), {token, (token + 1) % 64});
      tensor = doubled;
    }
  return batch;
}
TrainingBatch taught() {
  TrainingBatch batch = of_two_targets(answers({1, 2, 1, 3, 2}));
  batch.loss.name = "distill";
  for (TrainingDatum& datum : batch.data) {
    NamedTensor told = numbers(2 * datum.tokens.size(), -0.75f);
    told.shape = datum.inputs["target_tokens"].shape;
    for (std::size_t i = 1; i < told.floats.size(); i += 2) told.floats[i] = -2;
    datum.inputs["teacher_logprobs"] = told;
  }
  return batch;
}
TrainingBatch returned() {
  TrainingBatch batch = answers({1, 2, 1, 1});
  batch.loss.name = "value";
  for (TrainingDatum& datum : batch.data) {
    datum.inputs.erase("target_tokens");
    datum.inputs["returns"] = numbers(datum.tokens.size(), 0.5f);
  }
  return batch;
}
// Whose answers are the value of their end.
TrainingBatch judged() {
  TrainingBatch batch = answers({1, 1, 2, 2});
  batch.loss.name = "pairwise_reward";
  for (TrainingDatum& datum : batch.data) datum.inputs.erase("weights");
  return batch;
}

bool of_critics(const TrainingBatch& batch) { return batch.loss.name == "value" || batch.loss.name == "pairwise_reward"; }

struct Learned {
  std::vector<std::vector<float>> told;  // with the gradient, of each datum
  std::string norm, digest, state;       // of the step, and of the checkpoint behind it
};
Learned learned_from(TrainingBatch batch, const char* share, std::int64_t tokens = 4096) {
  TrainingBench bench({.tokens_a_step = tokens, .turn_seconds = 0});
  CreateModel wanted;
  wanted.session = bench.session();
  wanted.settings.base_model = of_critics(batch) ? "tiny:value" : "tiny";
  wanted.settings.rank = 0;
  const Outcome made = bench.result(bench.service->model_life().create("me", wanted, [](const ModelRecord& r) { return Outcome{"text/plain", r.id, {}, {}}; }));
  EXPECT_FALSE(made.failed()) << made.message;
  batch.loss.config["share_prompts"] = std::string(share);
  Learned all;
  const Outcome computed = bench.result(bench.service->operations().forward_backward("me", made.bytes, 1, std::move(batch), [&all](const TrainingOutput& out) {
    for (const DatumOutput& datum : out.data) all.told.push_back(datum.logprobs);
    return Outcome{"text/plain", {}, {}, {}};
  }));
  EXPECT_FALSE(computed.failed()) << computed.message;
  all.norm = bench.result(bench.step(made.bytes, 2)).bytes;
  const Outcome saved =
      bench.result(bench.service->operations().save("me", made.bytes, 3, {.kind = "weights", .name = "behind"}, [](const CheckpointRecord& r) {
        return Outcome{"text/plain", r.profile, {}, {}};
      }));
  EXPECT_FALSE(saved.failed()) << saved.message;
  all.digest = saved.bytes;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(bench.folder))
    if (entry.path().filename() == "state.safetensors") all.state = read_file(entry.path(), std::size_t{1} << 26);
  return all;
}

// The norm of that gradient with prompts that are declared here, as the commands declare them.
std::string norm_by_hand(const TrainingBatch& batch) {
  const TrainingBench bench;
  const std::shared_ptr<const Model> model = of_critics(batch) ? bench.base->open_values().model : bench.base->opened.model;
  Runtime runtime({.threads = 1}, model, profile_by_name("cpu-bf16w"), 128);
  Trainer trainer(runtime, initial_weights(model->manifest(), 3, 0.1), {.declared_prefixes = true});
  BatchLimits limits = batch_limits(runtime);
  limits.values = of_critics(batch);
  PreparedBatch prepared;
  std::vector<TrainSequence> trained;
  if (is_batch_loss(batch.loss.name)) {
    const std::unique_ptr<BatchLoss> loss = make_batch_loss(batch, limits, prepared);
    const auto first = prepared.sequences.begin() + static_cast<std::ptrdiff_t>(loss->untrained());
    if (loss->untrained() > 0) {
      const std::vector<std::vector<float>> compared = trainer.score(std::vector<TrainSequence>(prepared.sequences.begin(), first));
      loss->compare(prepared, 0, compared);
    }
    trained.assign(first, prepared.sequences.end());
    loss->together() == 2 ? declare_pairs(trained) : declare_prompts(trained);
    std::copy(trained.begin(), trained.end(), first);
    const std::vector<std::vector<float>> logprobs = trainer.score(trained);
    loss->weigh(prepared, loss->untrained(), logprobs);
    trained.assign(first, prepared.sequences.end());
  } else {
    prepared = prepare_batch(batch, limits);
    trained = prepared.sequences;
    declare_prompts(trained);
  }
  trainer.forward_backward(trained, prepared.loss);
  AdamParameters adam;
  adam.learning_rate = 0.01;
  return fmt::format("{:a}", trainer.optim_step(adam).gradient_norm);
}

struct SharedLoss {
  const char* name;
  std::function<TrainingBatch()> batch;
  std::ptrdiff_t rows;     // of a datum's prompt
  std::ptrdiff_t targets;  // of a row
};
class SharedLosses : public ::testing::TestWithParam<SharedLoss> {};

TEST_P(SharedLosses, HaveTheGradientOfDeclaredPrompts) {
  const SharedLoss& c = GetParam();
  const Learned plain = learned_from(c.batch(), "forward"), shared = learned_from(c.batch(), "backward");
  EXPECT_EQ(shared.norm, norm_by_hand(c.batch()));
  EXPECT_FALSE(shared.state == plain.state);  // the control: it is another gradient
  const Profile& profile = profile_by_name("cpu-bf16w");
  EXPECT_EQ(shared.digest, profile.training_digest(true));
  EXPECT_EQ(plain.digest, profile.training_digest(false));
  // Answers are told as ever; a shared prompt has no targets.
  std::size_t without = 0;
  ASSERT_EQ(shared.told.size(), plain.told.size());
  for (std::size_t d = 0; d < shared.told.size(); ++d) {
    std::vector<float> wanted = plain.told[d];
    EXPECT_NE(wanted[0], 0.0f) << d;
    if (shared.told[d][0] == 0) ++without, std::fill_n(wanted.begin(), c.rows * c.targets, 0.0f);
    EXPECT_EQ(shared.told[d], wanted) << d;
  }
  EXPECT_GE(without, 3u);
  // Pieces of one group, or one pair.
  const Learned pieces = learned_from(c.batch(), "backward", 12);
  EXPECT_EQ(pieces.told, shared.told);
  EXPECT_TRUE(pieces.state == shared.state);
}

INSTANTIATE_TEST_SUITE_P(Losses, SharedLosses,
                         ::testing::Values(SharedLoss{"pairs", pairs, 7, 1}, SharedLoss{"labelled", labelled, 7, 1}, SharedLoss{"distill", taught, 7, 2},
                                           SharedLoss{"targets",
                                                      [] {
                                                        return of_two_targets(answers({1, 2, 1, 1}));
                                                      },
                                                      7, 2},
                                           SharedLoss{"value", returned, 7, 1}, SharedLoss{"reward", judged, 8, 1}),
                         [](const auto& p) { return std::string(p.param.name); });

TEST(SharedLossErrors, EachIsOneSentence) {
  TrainingBench bench;
  const std::string model = bench.model(bench.session(), 0, 4);
  TrainingBatch batch = pairs();
  for (TrainingDatum& datum : batch.data) datum.inputs.erase("weights");
  batch.loss.config["share_prompts"] = std::string("backward");
  EXPECT_NE(bench.result(bench.batch(model, 1, batch)).message.find("no datum has a prompt"), std::string::npos);
  batch.loss.config["share_prompts"] = std::string("both");
  EXPECT_NE(bench.result(bench.batch(model, 2, batch)).message.find("share_prompts is 'both', allowed are forward, backward"), std::string::npos);
  batch.loss.config.clear();
  batch.loss.config["share_prompt"] = std::string("backward");
  EXPECT_NE(bench.result(bench.batch(model, 3, batch)).message.find("did you mean 'share_prompts'"), std::string::npos);
}

// As of losses that the trainer computes itself; told by the client's data, whose order is not the one of what is trained.
TEST(SharedLossErrors, WhatIsComputedAtOnceHasASize) {
  const TrainingBench bench;
  const BatchLimits limits = batch_limits(*bench.base->opened.runtime);
  TrainingBatch batch = answers(std::vector<std::int32_t>(4001, 1));
  batch.loss.name = "kto";
  for (std::size_t d = 0; d < batch.data.size(); ++d) {
    std::map<std::string, NamedTensor>& inputs = batch.data[d].inputs;
    inputs["label"] = NamedTensor{.shape = {1}, .floats = {}, .integers = {d == 2 ? -1 : 1}, .is_float = false};
    inputs["reference_logprobs"] = numbers(batch.data[d].tokens.size(), -3);
  }
  PreparedBatch prepared;
  const std::unique_ptr<BatchLoss> loss = make_batch_loss(batch, limits, prepared);
  const std::string said = error_text([&] { share_weighed_prompts(*loss, limits.max_positions, prepared); });
  EXPECT_NE(said.find("data[0] to data[4000], which equal prompts hold together, are 4000 data of 20007 rows"), std::string::npos) << said;
}

}  // namespace
}  // namespace lockstep
