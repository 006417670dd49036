// Steps over more ranks than there are groups of experts, each of which has some experts (model/expert_pairs.h), have the bits of one rank: with rows of their
// own and with the same rows, over threads and processes. The control: sums that are joined in another order at home are seen.
#include "model/expert_pairs.h"

#include <gtest/gtest.h>

#include "kernels/planted_kernel_test_tools.h"
#include "model/sharding.h"
#include "numerics/form.h"
#include "parallel/exchange_counts.h"
#include "parallel/memory_wire_test_tools.h"
#include "parallel/thread_ranks.h"
#include "train/train_test_tools.h"
#include "train/trainer.h"

namespace lockstep {
namespace {

constexpr const char* kFourExpertsARow = R"({
  "model_type": "qwen3_moe", "vocab_size": 96, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 6, "num_key_value_heads": 3,
  "head_dim": 32, "max_position_embeddings": 1024, "intermediate_size": 96, "rms_norm_eps": 1e-06, "rope_theta": 10000.0,
  "tie_word_embeddings": true, "hidden_act": "silu", "mlp_only_layers": [0], "moe_intermediate_size": 24, "num_experts": 16,
  "num_experts_per_tok": 4, "norm_topk_prob": true})";

std::string of_experts(const char* text, const char* key, int experts) {
  Json config = Json::parse(text);
  config[key] = experts;
  return config.dump();
}

struct PairStep {
  std::vector<std::vector<float>> logprobs;
  double norm = 0;
  WeightImages gradients;
  TrainerState state;
  ExchangeCounters travelled;  // of the first local rank, to experts and back
};

PairStep pair_step(const TrainBench& bench, const std::string& layout, const std::vector<TrainSequence>& data, const char* profile = "cpu-bf16w",
                   std::int64_t micro_batch = 0, std::unique_ptr<Ranks> given = nullptr) {
  const RankLayout ranks = rank_layout(layout);
  Runtime runtime({.threads = 1}, bench.model, profile_by_name(profile), 600);
  Trainer trainer(runtime, bench.masters, {.micro_batch = micro_batch, .checkpoint_activations = micro_batch > 0, .ranks = ranks},
                  std::make_shared<RankRuntimes>(runtime, ranks, std::move(given)));
  PairStep step;
  step.logprobs = trainer.forward_backward(data, {}).logprobs;
  step.gradients = trainer.gradient_images();
  step.norm = trainer.optim_step({.weight_decay = 0.1, .router_bias_rate = 1e-3}).gradient_norm;
  step.state = trainer.state().all();
  step.travelled = exchanges_of(trainer.ranks().ranks().place(0)).of(RankGroup::model, Collective::exchange);
  return step;
}

void expect_same_pair_step(const TrainBench& bench, const PairStep& got, const PairStep& want, const std::string& what) {
  SCOPED_TRACE(what);
  const Manifest& manifest = bench.model->manifest();
  EXPECT_EQ(got.logprobs, want.logprobs);
  EXPECT_EQ(got.norm, want.norm);
  EXPECT_EQ(difference(manifest, got.gradients, want.gradients), "") << "gradients";
  EXPECT_EQ(difference(manifest, got.state.masters, want.state.masters), "") << "masters";
  EXPECT_EQ(difference(manifest, got.state.second_moments, want.state.second_moments), "") << "second moments";
}

TEST(ExpertPairs, HaveTheBitsOfOneRankForAnyCountOfExperts) {
  for (const auto& [experts, layouts] : {std::pair(16, std::vector<std::string>{"ep=9,rows=dealt", "ep=12,rows=dealt", "ep=12", "tp=3,ep=3"}),
                                         {12, {"ep=12,rows=dealt", "ep=10"}},
                                         {7, {"ep=11,rows=dealt", "ep=9"}}}) {
    const TrainBench bench(of_experts(kFourExpertsARow, "num_experts", experts));
    const std::vector<TrainSequence> data = sequences(bench.model->facts().vocabulary, 4, 60);
    const PairStep want = pair_step(bench, "", data);
    for (const std::string& layout : layouts)
      expect_same_pair_step(bench, pair_step(bench, layout, data), want, fmt::format("{} experts, {}", experts, layout));
  }
}

// Shared experts and a router's bias; replicas; micro-batches whose segments are computed again, so that rows travel again; fp32 and few bits.
TEST(ExpertPairs, HaveTheBitsOfOneRankInOtherWaysOfTraining) {
  const TrainBench bench(of_experts(kGlm, "n_routed_experts", 14));
  const std::vector<TrainSequence> data = sequences(bench.model->facts().vocabulary, 4, 60);
  for (const char* profile : {"cpu-f32", "cpu-int4-qat"}) {
    const PairStep want = pair_step(bench, "", data, profile);
    for (const char* layout : {"ep=10,rows=dealt", "ep=9"}) expect_same_pair_step(bench, pair_step(bench, layout, data, profile, 2), want, layout);
  }
  expect_same_pair_step(bench, pair_step(bench, "dp=2,ep=9,rows=dealt", data), pair_step(bench, "", data), "two replicas");
}

TEST(ExpertPairs, EachRankHasSomeExpertsTheFirstTheMost) {
  for (const int experts : {9, 16, 23}) {
    const TrainBench bench(of_experts(kFourExpertsARow, "num_experts", experts));
    const RankLayout layout = rank_layout("ep=9,rows=dealt");
    ThreadRanks ranks(layout);
    std::int64_t all = 0, first = 0;
    for (int rank = 0; rank < layout.size(); ++rank) {
      const Sharding sharding(*bench.model, profile_by_name("cpu-f32"), ranks.place(rank));
      std::int64_t own = 0;
      for (const Parameter& p : sharding.manifest().parameters())
        if (p.split == ParameterSplit::experts) own = p.count;
      if (rank == 0) first = own;
      EXPECT_GE(own, experts / 9);
      EXPECT_LE(own, first);
      all += own;
    }
    EXPECT_EQ(first, (experts + 8) / 9);
    EXPECT_EQ(all, experts);
  }
}

TEST(ExpertPairs, ProcessesHaveTheBitsOfOneRankAndSendTheChosenPairsAlone) {
  const TrainBench bench(of_experts(kFourExpertsARow, "num_experts", 12));
  const std::vector<TrainSequence> data = sequences(bench.model->facts().vocabulary, 4, 60);
  const char* layout = "ep=9,rows=dealt";
  const PairStep want = pair_step(bench, "", data), alike = pair_step(bench, layout, data);
  std::vector<PairStep> got(3);
  as_processes(3, [&](ProcessMail& mail) {
    got[static_cast<std::size_t>(mail.process())] = pair_step(bench, layout, data, "cpu-bf16w", 0, std::make_unique<ProcessRanks>(rank_layout(layout), mail));
  });
  for (const PairStep& one : got) expect_same_pair_step(bench, one, want, layout);
  EXPECT_EQ(got[0].travelled.calls, alike.travelled.calls);
  EXPECT_EQ(got[0].travelled.bytes, alike.travelled.bytes);  // the most that may travel
  EXPECT_EQ(alike.travelled.sent, alike.travelled.bytes);
  EXPECT_LT(2 * got[0].travelled.sent, got[0].travelled.bytes);  // of a row each rank has four pairs in nine ranks' places
}

// The control: where pairs are joined, all experts are one group, so sums are one chain. Ranks that have groups are not touched.
TEST(ExpertPairsControl, AnotherOrderAtHomeIsSeen) {
  const TrainBench bench(kFourExpertsARow);
  const std::vector<TrainSequence> data = sequences(bench.model->facts().vocabulary, 4, 60);
  const PairStep want = pair_step(bench, "", data);
  const PlantedKernel<ExpertCombine> planted(&KernelTable::expert_combine, [](const ExpertCombine& op, ThreadPool& pool) {
    ExpertCombine other = op;
    if (!op.slot_of) other.experts = kExpertGroups * op.experts;
    PlantedKernel<ExpertCombine>::right(other, pool);
  });
  expect_same_pair_step(bench, pair_step(bench, "ep=8,rows=dealt", data), want, "groups");
  for (const char* layout : {"ep=9,rows=dealt", "ep=9"}) EXPECT_NE(pair_step(bench, layout, data).logprobs, want.logprobs) << layout;
}

}  // namespace
}  // namespace lockstep
