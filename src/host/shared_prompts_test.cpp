// The option share_prompts of a batch: equal prompts of a request are one sequence in the backward, with the bits of declared prefixes, in pieces too, and
// checkpoints of weights that it moved say so.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "base/file.h"
#include "base/growth_test_tools.h"
#include "host/batch_pieces.h"
#include "host/loss_inputs.h"
#include "host/shared_prompts_test_tools.h"
#include "train/declared_prompts.h"
#include "train/trainer.h"

namespace lockstep {
namespace {

const std::vector<std::int32_t> kPrompts = {1, 2, 1, 3, 2, 1, 3, 4};  // of which only the last stands once

// What the gradient and the step after it tell.
std::string learned(TrainingBench& bench, std::int64_t rank, const std::string& share) {
  const std::string model = bench.model(bench.session(), 0, rank);
  const Outcome told = bench.result(bench.batch(model, 1, answers(kPrompts, share)));
  EXPECT_FALSE(told.failed()) << told.message;
  return told.bytes + bench.result(bench.step(model, 2)).bytes;
}

// What a step on this batch leaves of a model of all weights: its masters and moments, which have every bit of the gradient.
std::string state_behind(const TrainingBatch& batch) {
  TrainingBench bench;
  const std::string model = bench.model(bench.session(), 0, 0);
  const Outcome told = bench.result(bench.batch(model, 1, batch));
  EXPECT_FALSE(told.failed()) << told.message;
  bench.result(bench.step(model, 2));
  const Outcome saved = bench.result(bench.service->operations().save("me", model, 3, {.kind = "weights", .name = "behind"}, [](const CheckpointRecord&) {
    return Outcome{"text/plain", {}, {}, {}};
  }));
  EXPECT_FALSE(saved.failed()) << saved.message;
  std::string state;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(bench.folder))
    if (entry.path().filename() == "state.safetensors") state = read_file(entry.path(), std::size_t{1} << 26);
  EXPECT_FALSE(state.empty());
  return state;
}

TEST(SharedPrompts, TheGradientIsThatOfDeclaredPrompts) {
  TrainingBench bench;
  const std::string model = bench.model(bench.session(), 0, 0);
  bench.result(bench.batch(model, 1, answers(kPrompts, "backward")));
  const std::string norm = bench.result(bench.step(model, 2)).bytes;
  EXPECT_FALSE(state_behind(answers(kPrompts, "backward")) == state_behind(answers(kPrompts, "forward")));  // the control: it has other bits
  Runtime runtime({.threads = 1}, bench.base->opened.model, profile_by_name("cpu-bf16w"), 128);
  PreparedBatch prepared = prepare_batch(answers(kPrompts), batch_limits(runtime));
  declare_prompts(prepared.sequences);  // as `train sft --share-prompts backward` does
  Trainer trainer(runtime, initial_weights(runtime.model->manifest(), 3, 0.1), {.declared_prefixes = true});
  trainer.forward_backward(prepared.sequences, prepared.loss);
  AdamParameters adam;
  adam.learning_rate = 0.01;
  EXPECT_EQ(norm, fmt::format("{:a}", trainer.optim_step(adam).gradient_norm));
}

// Packages that train policies send no weights: their prompts have no advantages.
TEST(SharedPrompts, PromptsAreRowsWithoutAdvantagesToo) {
  const auto policy = [](bool weighted, const std::string& share, const std::string& loss = "importance_sampling") {
    TrainingBatch batch = answers(kPrompts, share);
    batch.loss.name = loss;
    for (std::size_t d = 0; d < batch.data.size(); ++d) {
      std::map<std::string, NamedTensor>& inputs = batch.data[d].inputs;
      NamedTensor advantages = inputs["weights"], logprobs = advantages;
      for (float& advantage : advantages.floats) advantage *= d == 3 ? 0.0f : 0.5f - static_cast<float>(d);  // one of none at all
      std::fill(logprobs.floats.begin(), logprobs.floats.end(), -3.0f);
      inputs["advantages"] = advantages;
      inputs["logprobs"] = logprobs;
      if (!weighted) inputs.erase("weights");
    }
    return batch;
  };
  const std::string shared = state_behind(policy(false, "backward"));
  EXPECT_TRUE(state_behind(policy(true, "backward")) == shared);
  EXPECT_FALSE(state_behind(policy(false, "forward")) == shared);  // the control
  const TrainingBench bench;
  // Where such a row is a part of something it is no prompt.
  const BatchLimits limits = batch_limits(*bench.base->opened.runtime);
  EXPECT_NE(error_text([&] { prepare_batch(policy(false, "backward", "gspo"), limits); }).find("no datum has a prompt"), std::string::npos);
  EXPECT_EQ(error_text([&] { prepare_batch(policy(true, "backward", "gspo"), limits); }), "accepted");
}

TEST(SharedPrompts, ATextOfWhichNothingIsTrainedIsNoPromptAlone) {
  TrainingBench bench;
  TrainingBatch batch = answers({1, 1, 1}, "backward");
  batch.data[1] = batch.data[0];
  for (std::size_t d = 0; d < 2; ++d) std::fill(batch.data[d].inputs["weights"].floats.begin(), batch.data[d].inputs["weights"].floats.end(), 0.0f);
  const PreparedBatch prepared = prepare_batch(batch, batch_limits(*bench.base->opened.runtime));
  EXPECT_EQ(prepared.sequences[0].shared_prefix, std::ssize(prepared.sequences[0].tokens) - 1);
  EXPECT_EQ(prepared.sequences[2].shared_prefix, 0);
  const Outcome told = bench.result(bench.batch(bench.model(bench.session(), 0, 4), 1, batch));
  EXPECT_FALSE(told.failed()) << told.message;
}

TEST(SharedPrompts, InPiecesGroupsStayWhole) {
  for (const std::int64_t rank : {0, 4}) {
    TrainingBench whole, pieces({.tokens_a_step = 12, .turn_seconds = 0});
    EXPECT_EQ(learned(pieces, rank, "backward"), learned(whole, rank, "backward")) << rank;
  }
  std::vector<TrainSequence> sequences(5);
  for (TrainSequence& one : sequences) one.tokens = {1, 2, 3};
  for (const std::size_t s : {0, 2}) sequences[s].prefix_group = 0, sequences[s].shared_prefix = 2;
  for (const std::size_t s : {3, 4}) sequences[s].prefix_group = 3, sequences[s].shared_prefix = 2;
  EXPECT_EQ(piece_end(sequences, 0, 1), 3u);
  EXPECT_EQ(piece_end(sequences, 1, 1), 2u);
  EXPECT_EQ(half_piece(sequences, 0, 5), 3u);
  EXPECT_EQ(half_piece(sequences, 0, 3), 3u);
  EXPECT_EQ(half_piece(sequences, 3, 5), 5u);
  EXPECT_EQ(half_piece(sequences, 1, 2), 2u);
}

TEST(SharedPrompts, CheckpointsOfWhatTheyMovedSaySo) {
  TrainingBench bench;
  const Profile& profile = bench.base->opened.runtime->profile;
  const std::string session = bench.session(), model = bench.model(session, 0, 4);
  // The digest of a checkpoint, and its path.
  const auto saved = [&](const std::string& of, std::int64_t number, const std::string& name) {
    const Outcome told = bench.result(bench.service->operations().save("me", of, number, {.kind = "weights", .name = name}, [](const CheckpointRecord& r) {
      return Outcome{"text/plain", r.profile + " " + r.path(), {}, {}};
    }));
    EXPECT_FALSE(told.failed()) << told.message;
    const std::size_t space = told.bytes.find(' ');
    return std::pair(told.bytes.substr(0, space), told.bytes.substr(space + 1));
  };
  bench.result(bench.batch(model, 1, answers(kPrompts, "forward")));
  bench.result(bench.step(model, 2));
  EXPECT_EQ(saved(model, 3, "plain").first, profile.training_digest(false));
  bench.result(bench.batch(model, 4, answers(kPrompts, "backward")));
  EXPECT_EQ(saved(model, 5, "open").first, profile.training_digest(false));  // the gradient has moved nothing yet
  bench.result(bench.step(model, 6));
  const auto [digest, path] = saved(model, 7, "shared");
  EXPECT_EQ(digest, profile.training_digest(true));
  // A model that begins with it, and goes on without.
  CreateModel wanted;
  wanted.session = session;
  wanted.number = 1;
  wanted.from = path;
  wanted.with_optimizer = true;
  const Outcome made = bench.result(bench.service->model_life().create("me", wanted, [](const ModelRecord& r) { return Outcome{"text/plain", r.id, {}, {}}; }));
  ASSERT_FALSE(made.failed()) << made.message;
  bench.result(bench.batch(made.bytes, 1, answers(kPrompts)));
  bench.result(bench.step(made.bytes, 2));
  EXPECT_EQ(saved(made.bytes, 3, "later").first, profile.training_digest(true));
}

// Others wait for a turn, and what equal prompts hold together is one.
TEST(SharedPrompts, WhatIsComputedAtOnceHasASize) {
  TrainingBench bench;
  const BatchLimits limits = batch_limits(*bench.base->opened.runtime);
  EXPECT_EQ(most_uncut_rows(limits.max_positions), 16'384);
  EXPECT_EQ(most_uncut_rows(8192), 32'768);
  std::vector<std::int32_t> prompts;
  for (std::int32_t i = 0; i < 4100; ++i) prompts.push_back(i % 60);
  const auto said = [&](const std::vector<std::int32_t>& of) { return error_text([&] { prepare_batch(answers(of, "backward"), limits); }); };
  EXPECT_NE(said(prompts).find("data[0] to data[4099], which equal prompts hold together, are 4100 data of"), std::string::npos) << said(prompts);
  std::sort(prompts.begin(), prompts.end());
  EXPECT_EQ(said(prompts), "accepted");  // beside each other
  EXPECT_NE(said(std::vector<std::int32_t>(4000, 1)).find("are 4000 data of 20007 rows; they are computed at once, and allowed are 4096 data of 16384 rows"),
            std::string::npos);
  EXPECT_EQ(error_text([&] { prepare_batch(answers(std::vector<std::int32_t>(4000, 1)), limits); }), "accepted");  // nothing is shared
}

#ifndef __SANITIZE_THREAD__  // work that is counted on one thread

TEST(SharedPrompts, CuttingABatchIsLinear) {
  const auto pairs = [](std::size_t count) {
    std::vector<TrainSequence> sequences(count);
    for (std::size_t s = 0; s < count; ++s) {
      sequences[s].tokens.assign(8, 1);
      sequences[s].prefix_group = static_cast<std::int64_t>(s - s % 2);
      sequences[s].shared_prefix = 2;
    }
    return sequences;
  };
  const auto cut = [](const std::vector<TrainSequence>& sequences) {
    for (std::size_t begin = 0; begin < sequences.size();) begin = piece_end(sequences, begin, 2048);
  };
  EXPECT_LT(growth(pairs, cut, 8192), kLinearGrowth);
}

#endif

TEST(SharedPrompts, WhatCannotBeSharedIsRefused) {
  TrainingBench bench;
  const BatchLimits limits = batch_limits(*bench.base->opened.runtime);
  const auto refused = [&](const TrainingBatch& batch) { return error_text([&] { prepare_batch(batch, limits); }); };
  EXPECT_EQ(refused(answers(kPrompts, "backward")), "accepted");
  EXPECT_NE(refused(answers(kPrompts, "backwards")).find("share_prompts is 'backwards', allowed are forward, backward"), std::string::npos);
  TrainingBatch batch = answers(kPrompts);
  batch.loss.config["share_prompts"] = true;
  EXPECT_NE(refused(batch).find("share_prompts is no text, allowed are forward, backward"), std::string::npos);
  batch = answers(kPrompts, "backward");
  batch.forward_only = true;
  EXPECT_NE(refused(batch).find("a forward has no backward"), std::string::npos);
  batch = answers(kPrompts, "backward");
  for (TrainingDatum& datum : batch.data) datum.inputs.erase("weights");
  EXPECT_NE(refused(batch).find("no datum has a prompt"), std::string::npos);
}

}  // namespace
}  // namespace lockstep
