// What kernels count of themselves (model/forward_counts.h) is what they do: a kernel that reads all keys, or computes all experts, is put
// in the table, and the counters of engine and trainer, and parity, must notice (the demo: demo_engagement_test.cpp). Bits alone do not:
// training and serving agree all the same.
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/engine.h"
#include "parity/engine_ways.h"
#include "parity/parity.h"
#include "system/golden_tools.h"
#include "system/planted_work.h"
#include "train/trainer.h"

namespace lockstep {
namespace {

// Rows of serving alone, and there with four threads.
void wrong_with_four_threads(const AttentionForward& op, ThreadPool& pool) {
  AttentionForward other = op;
  if (!op.rows.segment && pool.threads() == 4) other.shape.scale *= 1.015625f;
  PlantedAttention::right(other, pool);
}

struct BothWork {
  ForwardCounts serving, training;
};
BothWork run_both(const RankLayout& ranks = {}) {
  const std::shared_ptr<const Model> model = make_model(golden_config("glm_moe_dsa/sharing"));
  Runtime runtime({.threads = ranks.size() > 1 ? 1 : 2}, model, profile_by_name("cpu-bf16w"));
  TrainerOptions options;
  options.ranks = ranks;
  options.checkpoint_activations = true;
  Trainer trainer(runtime, golden_weights(model->manifest(), 1), options);
  Engine engine(runtime, trainer.weights(), {.page_size = 4, .ranks = ranks});
  RandomSequence draws(3, RandomStream::fuzz);
  const std::vector<std::int32_t> tokens = random_tokens(draws, 40, model->facts().vocabulary);
  for (ScoreKind kind : {ScoreKind::prefill, ScoreKind::chunked, ScoreKind::decode, ScoreKind::prefix, ScoreKind::preempted})
    engine_score(engine, tokens, {.kind = kind, .seed = 9, .neighbours = 2});
  trainer.score({TrainSequence::next_token(tokens), TrainSequence::next_token(tokens)});  // the second shares the first one's rows
  trainer.forward_backward({TrainSequence::next_token(tokens)}, {});
  return {engine.counters().work, trainer.ranks().work()};
}

TEST(Engagement, WhatKernelsCountIsWhatLengthsAskFor) {
  BothWork alone;
  for (const char* layout : {"", "tp=2", "ep=2", "tp=3,dp=2", "tp=8"}) {
    const BothWork run = run_both(rank_layout(layout));
    if (!*layout) alone = run;
    for (const ForwardCounts& work : {run.serving, run.training}) {
      EXPECT_EQ(work.fault(), "") << layout;
      EXPECT_GT(work.pairs_skipped(), 0) << layout;
      EXPECT_GT(work.expert_rows, 0) << layout;
    }
    EXPECT_EQ(run.serving, alone.serving) << layout;
  }
}

TEST(Engagement, AttentionThatReadsAllKeysIsNoticed) {
  const PlantedAttention planted(&KernelTable::attention_forward, read_all_keys);
  const BothWork run = run_both();
  for (const ForwardCounts& work : {run.serving, run.training}) {
    EXPECT_EQ(work.pairs_skipped(), 0);
    EXPECT_EQ(work.pairs_read, work.pairs_visible);
    EXPECT_NE(work.fault().find("attention read"), std::string::npos) << work.fault();
  }
}

TEST(Engagement, ExpertsThatAreAllComputedAreNoticed) {
  const PlantedLinear planted(&KernelTable::linear_forward, compute_all_experts);
  const BothWork run = run_both();
  const std::int64_t experts = golden_config("glm_moe_dsa/sharing")["n_routed_experts"].get<std::int64_t>();
  for (const ForwardCounts& work : {run.serving, run.training}) {
    EXPECT_EQ(work.expert_rows, work.expert_rows_chosen * (experts + 1));
    EXPECT_NE(work.fault().find("matrices of experts"), std::string::npos) << work.fault();
  }
}

// Of short sequences, which are enough for this.
ParityReport parity_of_tiny() {
  Json config = tiny_config();
  config["max_position_embeddings"] = 40;
  ParityModel model;
  model.model = make_model(config);
  model.masters = golden_weights(model.model->manifest(), 5);
  return run_parity(model, {.cases = 0, .seed = 3, .step_share = 3});
}

TEST(Engagement, ParityFailsWhereAllKeysAreRead) {
  const PlantedAttention planted(&KernelTable::attention_forward, read_all_keys);
  const ParityReport report = parity_of_tiny();
  EXPECT_EQ(report.mismatches, 0) << "all places do the same";
  EXPECT_FALSE(report.miscounts.empty());
  const std::vector<std::string> idle = report.idle();
  EXPECT_NE(std::find(idle.begin(), idle.end(), "sparse_pairs_skipped"), idle.end());
  EXPECT_FALSE(report.passed());
}

TEST(Engagement, ParityFailsWhereAllExpertsAreComputed) {
  const PlantedLinear planted(&KernelTable::linear_forward, compute_all_experts);
  const ParityReport report = parity_of_tiny();
  EXPECT_EQ(report.mismatches, 0) << to_text(report);
  EXPECT_FALSE(report.miscounts.empty());
  EXPECT_FALSE(report.passed());
}

// Four threads are a place of parity, and a fault of serving alone is one of its findings.
TEST(Engagement, ParityFailsWhereServingOnFourThreadsIsWrong) {
  const PlantedAttention planted(&KernelTable::attention_forward, wrong_with_four_threads);
  const ParityReport report = parity_of_tiny();
  EXPECT_GT(report.mismatches, 0);
  ASSERT_TRUE(report.first_mismatch);
  EXPECT_NE(report.first_mismatch->run.find("4 threads"), std::string::npos) << report.first_mismatch->run;
  EXPECT_EQ(report.first_mismatch->operation, "attention");
  EXPECT_TRUE(report.control.serving_detected) << to_text(report);
}

}  // namespace
}  // namespace lockstep
