// The exchanges that a plan counts, without the other ranks, equal the counters of a real step of all ranks, by rank, group and operation.
#include "planning/step_plan.h"

#include <gtest/gtest.h>

#include "base/philox.h"
#include "model/low_bit_weights.h"
#include "parallel/memory_wire_test_tools.h"
#include "parallel/some_ranks_test_tools.h"
#include "train/adapter_trainer.h"
#include "train/train_test_tools.h"
#include "train/trainer.h"

namespace lockstep {
namespace {

std::vector<TrainSequence> sequences_of(const Model& model, RandomSequence& draws) {
  std::vector<TrainSequence> data;
  for (std::uint32_t left = 1 + draws.below(6); left > 0; --left) {
    std::vector<std::int32_t> tokens(3 + draws.below(40));
    for (std::int32_t& token : tokens) token = static_cast<std::int32_t>(draws.below(static_cast<std::uint32_t>(model.facts().vocabulary)));
    data.push_back(TrainSequence::next_token(tokens));
  }
  return data;
}

std::vector<RankExchanges> exchanges_of_step(const TrainBench& bench, const Profile& profile, const StepPlan& plan, std::int64_t positions = 600) {
  const RankLayout& layout = plan.trainer.ranks;
  const auto all = std::make_shared<ThreadRanks>(layout);
  Runtime runtime({.kind = BackendKind::cpu, .threads = 1}, bench.model, profile, positions);
  Trainer trainer(runtime, bench.masters, plan.trainer, std::make_shared<RankRuntimes>(runtime, layout, std::make_unique<SomeRanks>(all, 0, layout.size())));
  std::vector<RankExchanges> before, step;
  for (int rank = 0; rank < layout.size(); ++rank) before.push_back(exchanges_of(all->place(rank)));
  trainer.forward_backward(plan.sequences, {});
  trainer.optim_step(plan.adam);
  for (int rank = 0; rank < layout.size(); ++rank) step.push_back(exchanges_of(all->place(rank)) - before[static_cast<std::size_t>(rank)]);
  return step;
}

TEST(StepPlan, ExchangesAreThoseOfARealStepInRandomLayouts) {
  const TrainBench glm(kGlm), llama(kLlama), qwen(kQwen);
  const std::vector<const TrainBench*> benches{&glm, &llama, &qwen};
  RandomSequence draws(24, RandomStream::fuzz);
  int layouts = 0;
  while (layouts < 30) {
    StepPlan plan;
    plan.trainer.ranks = {1 + static_cast<int>(draws.below(4)), 1 + static_cast<int>(draws.below(4)), 1 + static_cast<int>(draws.below(3)),
                          1 + static_cast<int>(draws.below(3)), 1 + static_cast<int>(draws.below(2))};
    if (plan.trainer.ranks.size() < 2 || plan.trainer.ranks.size() > 16) continue;
    plan.trainer.ranks.shard = layouts % 2 == 1 ? RankShard::weights : RankShard::state;
    plan.processes = layouts % 4 < 2;  // whose exchanges come earlier, and are the same
    const TrainBench& bench = *benches[static_cast<std::size_t>(layouts++ % 3)];
    plan.sequences = sequences_of(*bench.model, draws);
    plan.trainer.micro_batch = draws.below(3);
    plan.trainer.checkpoint_activations = draws.below(2) == 1;
    plan.adam.router_bias_rate = draws.below(2) == 1 ? 1e-3 : 0;
    const Profile& profile = profile_by_name(draws.below(2) == 1 ? "cpu-f32" : "cpu-bf16w");
    SCOPED_TRACE(fmt::format("{} of {}, {}, {} sequences", plan.trainer.ranks.text(), bench.model->facts().model_type, profile.name, plan.sequences.size()));
    const std::vector<RankExchanges> real = exchanges_of_step(bench, profile, plan);
    std::int64_t bytes = 0;
    for (int rank = 0; rank < plan.trainer.ranks.size(); ++rank) {
      const RankExchanges planned = plan_step(bench.model, profile, plan, rank).exchanges;
      EXPECT_EQ(planned.difference(real[static_cast<std::size_t>(rank)]), "") << "rank " << rank;
      bytes += planned.sum().bytes;
    }
    EXPECT_GT(bytes, 0);
  }
}

// Rows that travel to their experts, of which a plan counts the most that may; ranks without sequences, ranks without experts.
TEST(StepPlan, ExchangesOfDealtRowsAreThoseOfARealStep) {
  const TrainBench bench(kGlm);
  RandomSequence draws(25, RandomStream::fuzz);
  std::int64_t number = 0;
  for (const auto& [dp, ep] : {std::pair{1, 2}, {1, 3}, {2, 2}, {2, 3}, {1, 9}, {3, 4}, {1, 12}, {2, 10}}) {
    StepPlan plan;
    plan.trainer.ranks = {.dp = dp, .ep = ep, .rows = ReplicaRows::dealt};
    plan.sequences = sequences_of(*bench.model, draws);
    plan.trainer.micro_batch = number % 3;
    plan.trainer.checkpoint_activations = number++ % 2 == 1;
    const Profile& profile = profile_by_name(number % 2 == 1 ? "cpu-f32" : "cpu-bf16w");
    SCOPED_TRACE(fmt::format("{}, {}, {} sequences", plan.trainer.ranks.text(), profile.name, plan.sequences.size()));
    const std::vector<RankExchanges> real = exchanges_of_step(bench, profile, plan);
    std::int64_t travelled = 0, tokens = 0;
    for (int rank = 0; rank < plan.trainer.ranks.size(); ++rank) {
      const RankStep planned = plan_step(bench.model, profile, plan, rank);
      EXPECT_EQ(planned.exchanges.difference(real[static_cast<std::size_t>(rank)]), "") << "rank " << rank;
      travelled += planned.exchanges.of(RankGroup::model, Collective::exchange).bytes;
      tokens += planned.work.tokens;
    }
    EXPECT_GT(travelled, 0);
    std::int64_t all = 0;
    for (const TrainSequence& s : plan.sequences) all += std::ssize(s.tokens);
    EXPECT_EQ(tokens, all);
    StepPlan same = plan;
    same.trainer.ranks.rows = ReplicaRows::shared;
    EXPECT_NE(plan_step(bench.model, profile, same, 0).exchanges.difference(real[0]), "") << "the control: the same rows on every rank";
  }
}

// Sequences in pieces: keys that are gathered, sums that go on from rank to rank.
TEST(StepPlan, ExchangesOfPiecesAreThoseOfARealStep) {
  for (std::string config : {std::string(kGlm), std::string(kLlama)}) {
    const std::string key = "\"max_position_embeddings\": 1024";
    config.replace(config.find(key), key.size(), "\"max_position_embeddings\": 4096");
    const TrainBench bench(config);
    StepPlan plan;
    for (const std::size_t length : {1700, 2700, 40}) plan.sequences.push_back(TrainSequence::next_token(std::vector<std::int32_t>(length, 3)));
    for (const RankLayout& layout :
         {RankLayout{.cp = 2}, {.tp = 2, .cp = 3}, {.dp = 2, .pp = 2, .cp = 2}, {.dp = 2, .pp = 2, .cp = 2, .shard = RankShard::weights}}) {
      plan.trainer.ranks = layout;
      const std::vector<RankExchanges> real = exchanges_of_step(bench, profile_by_name("cpu-bf16w"), plan, 4096);
      for (int rank = 0; rank < layout.size(); ++rank)
        EXPECT_EQ(plan_step(bench.model, profile_by_name("cpu-bf16w"), plan, rank).exchanges.difference(real[static_cast<std::size_t>(rank)]), "")
            << layout.text() << ", rank " << rank;
      EXPECT_GT(real[0].sum(RankGroup::context).bytes, 0);
    }
  }
}

// An adapter over frozen weights, with pieces and without.
TEST(StepPlan, ExchangesOfAnAdapterAreThoseOfARealStep) {
  for (std::string config : {std::string(kGlm), std::string(kQwen)}) {
    const std::string key = "\"max_position_embeddings\": 1024";
    config.replace(config.find(key), key.size(), "\"max_position_embeddings\": 4096");
    const TrainBench bench(config);
    const Profile& profile = profile_by_name("cpu-bf16w");
    StepPlan plan;
    plan.adapter = AdapterSettings{.rank = 4, .unembedding = true};
    for (const std::size_t length : {1700, 30, 40}) plan.sequences.push_back(TrainSequence::next_token(std::vector<std::int32_t>(length, 3)));
    for (const RankLayout& layout : {RankLayout{.cp = 2},
                                     {.tp = 3},
                                     {.tp = 2, .dp = 2, .ep = 2},
                                     {.tp = 2, .pp = 2, .cp = 2},
                                     {.dp = 3, .shard = RankShard::weights},
                                     {.tp = 2, .pp = 2, .cp = 2, .shard = RankShard::weights}}) {
      plan.trainer.ranks = layout;
      const auto all = std::make_shared<ThreadRanks>(layout);
      Runtime runtime({.threads = 1}, bench.model, profile, 4096);
      const auto base =
          std::make_shared<FrozenBase>(runtime, make_weight_set(runtime.backend, bench.model->manifest(), bench.masters, profile, 0), plan.trainer,
                                       std::make_shared<RankRuntimes>(runtime, layout, std::make_unique<SomeRanks>(all, 0, layout.size())));
      const auto adapter = std::make_shared<const AdapterLayout>(bench.model->manifest(), *plan.adapter);
      AdapterTrainer trainer(base, adapter, initial_adapter(*adapter, 1));
      std::vector<RankExchanges> before;
      for (int rank = 0; rank < layout.size(); ++rank) before.push_back(exchanges_of(all->place(rank)));
      trainer.forward_backward(plan.sequences, {});
      trainer.optim_step(plan.adam);
      std::int64_t bytes = 0;
      for (int rank = 0; rank < layout.size(); ++rank) {
        const RankExchanges real = exchanges_of(all->place(rank)) - before[static_cast<std::size_t>(rank)];
        EXPECT_EQ(plan_step(bench.model, profile, plan, rank).exchanges.difference(real), "") << layout.text() << ", rank " << rank;
        bytes += real.sum().bytes;
      }
      StepPlan whole = plan;
      whole.adapter.reset();
      EXPECT_NE(plan_step(bench.model, profile, whole, 0).exchanges.difference(exchanges_of(all->place(0)) - before[0]), "") << "the control: all weights";
      EXPECT_GT(bytes, 0);
    }
    plan.trainer.ranks = {};
    const RankWork adapted = work_of(*bench.model, profile, plan, 0);
    plan.adapter.reset();
    const RankWork whole = work_of(*bench.model, profile, plan, 0);
    EXPECT_GT(adapted.forward, whole.forward);
    EXPECT_LT(adapted.backward, whole.backward);
    EXPECT_LT(adapted.optimizer_bytes, whole.optimizer_bytes);
  }
}

// One rank of 1,024, whose exchanges follow from the rows that it has: of accumulators it gets its own from all others, of the next weights theirs.
TEST(StepPlan, ExchangesOfARankOf1024FollowFromItsRows) {
  const TrainBench bench(kLlama);
  StepPlan plan;
  plan.sequences.assign(1024, TrainSequence::next_token(std::vector<std::int32_t>(9)));
  plan.trainer.ranks = {.dp = 1024};
  for (const int rank : {0, 517, 1023}) {
    std::int64_t joined = 0, gathered = 0;
    for (std::size_t id = 0; id < bench.model->manifest().parameters().size(); ++id) {
      const Parameter& p = bench.model->manifest().parameters()[id];
      const bool packed = p.layout == ParameterLayout::packed;
      const std::int64_t rows = packed ? p.count * ((p.outputs + 15) / 16) : p.count * p.outputs, width = packed ? 16 * p.inputs : p.inputs;
      std::int64_t own = 0;  // rows that a rank has are those whose upper edge, in 1024ths, falls into its part
      for (std::int64_t row = 0; row < rows; ++row) own += (1024 * (row + 1) - static_cast<std::int64_t>(id) % 1024 + rows - 1) / rows - 1 == rank;
      joined += 1023 * own * (packed ? width : (width + 15) / 16 * 16) * 24;
      gathered += (rows - own) * width * 4;
    }
    const RankStep step = plan_step(bench.model, profile_by_name("cpu-f32"), plan, rank);
    EXPECT_EQ(step.exchanges.of(RankGroup::data, Collective::reduce_scatter).bytes, joined) << rank;
    EXPECT_EQ(step.exchanges.of(RankGroup::data, Collective::all_gather).bytes, gathered) << rank;
    EXPECT_EQ(step.work.tokens, 8);
  }
}

// Equal only to its own step: one token more is seen.
TEST(StepPlan, OneMoreTokenIsSeen) {
  const TrainBench bench(kGlm);
  StepPlan plan;
  plan.sequences = sequences(bench.model->facts().vocabulary, 1);
  plan.trainer.ranks = {2, 1, 2};
  const Profile& profile = profile_by_name("cpu-bf16w");
  const RankExchanges real = exchanges_of_step(bench, profile, plan)[1];
  EXPECT_EQ(plan_step(bench.model, profile, plan, 1).exchanges.difference(real), "");
  plan.sequences = {TrainSequence::next_token(std::vector<std::int32_t>(plan.sequences[0].tokens.size() + 2))};
  EXPECT_NE(plan_step(bench.model, profile, plan, 1).exchanges.difference(real), "");
}

TEST(StepPlan, MemoryIsThatOfAPlanOfAllRanks) {
  const std::string config = LOCKSTEP_SOURCE_DIR "/models/countdown-glm/config.json";
  for (const char* ranks : {"tp=2,dp=2", "tp=2,dp=2,shard=weights"}) {
    const RuntimeSettings settings{.model = config, .threads = 1, .ranks = ranks, .context = 40};
    const std::vector<MemoryPlan> all = plan_training(settings, {.sequences = 3, .length = 40, .trainer = {}});
    StepPlan plan;
    plan.sequences.assign(3, TrainSequence::next_token(std::vector<std::int32_t>(41)));
    plan.trainer.ranks = rank_layout(settings.ranks);
    for (const int rank : {0, 3}) {
      const RankStep step = plan_step(planned_model(settings), profile_by_name("cpu-bf16w"), plan, rank);
      const MemoryPlan& want = all[static_cast<std::size_t>(rank)];
      for (std::size_t c = 0; c < want.peak.size(); ++c)
        EXPECT_EQ(step.memory.peak[c], want.peak[c]) << ranks << ", " << rank << " " << kMemoryCategoryNames[c];
      EXPECT_EQ(step.memory.total, want.total) << ranks << ", " << rank;
    }
  }
}

// Ranks that are processes hold the other ranks' parts of a segment's gradients while they compute; a plan of threads does not have them.
TEST(StepPlan, MemoryOfProcessesIsThatOfTheirAccounts) {
  const TrainBench bench(kGlm);
  const Profile& profile = profile_by_name("cpu-bf16w");
  StepPlan plan;
  plan.sequences = sequences(bench.model->facts().vocabulary, 4);
  plan.trainer.micro_batch = 1;
  std::int64_t longest = 0;
  for (const TrainSequence& s : plan.sequences) longest = std::max(longest, static_cast<std::int64_t>(s.tokens.size()));
  for (const RankLayout& layout : {RankLayout{.dp = 2}, {.tp = 2, .dp = 2}, {.dp = 2, .shard = RankShard::weights}}) {
    plan.trainer.ranks = layout;
    std::vector<MemoryPlan> real(static_cast<std::size_t>(layout.size()));
    as_processes(2, [&](ProcessMail& mail) {
      Runtime runtime({.threads = 1}, bench.model, profile, longest);
      const auto runtimes = std::make_shared<RankRuntimes>(runtime, layout, std::make_unique<ProcessRanks>(layout, mail));
      Trainer trainer(runtime, bench.masters, plan.trainer, runtimes);
      for (int step = 0; step < 2; ++step) {
        trainer.forward_backward(plan.sequences, {});
        trainer.optim_step(plan.adam);
      }
      for (int local = 0; local < runtimes->ranks().local(); ++local)
        real[static_cast<std::size_t>(runtimes->ranks().place(local).rank)] = memory_of(runtimes->memory(local));
    });
    for (int rank = 0; rank < layout.size(); ++rank) {
      SCOPED_TRACE(fmt::format("{}, rank {}", layout.text(), rank));
      const MemoryPlan& want = real[static_cast<std::size_t>(rank)];
      plan.processes = true;
      const MemoryPlan planned = plan_step(bench.model, profile, plan, rank).memory;
      for (std::size_t c = 0; c < want.peak.size(); ++c) EXPECT_EQ(planned.peak[c], want.peak[c]) << kMemoryCategoryNames[c];
      EXPECT_EQ(planned.total, want.total);
      plan.processes = false;
      const std::size_t workspace = static_cast<std::size_t>(MemoryCategory::workspace);
      const std::int64_t of_threads = plan_step(bench.model, profile, plan, rank).memory.peak[workspace];
      if (layout.shard == RankShard::state) EXPECT_GT(planned.peak[workspace], of_threads);  // the control
      else EXPECT_EQ(planned.peak[workspace], of_threads);
    }
  }
}

// A model of matrices alone that one can count by hand, and what ranks have of it.
TEST(StepPlan, WorkIsSixTimesTheWeightsAndWhatPairsTake) {
  const TrainBench bench(kLlama);
  StepPlan plan;
  plan.sequences = {TrainSequence::next_token(std::vector<std::int32_t>(11))};
  const Profile& profile = profile_by_name("cpu-bf16w");
  const double attention = 96 * (128 + 64 + 64 + 128), mlp = 3 * 96 * 264, head = 128 * 96, layers = 2, tokens = 10, pairs = 8 * 2 * 55;
  const RankWork whole = work_of(*bench.model, profile, plan, 0);
  EXPECT_EQ(whole.tokens, 10);
  EXPECT_DOUBLE_EQ(whole.forward, 2 * tokens * (layers * (attention + mlp) + head) + pairs * 2 * 32);
  EXPECT_DOUBLE_EQ(whole.backward, 4 * tokens * (layers * (attention + mlp) + head) + pairs * 10 * 16);
  plan.trainer.checkpoint_activations = true;
  EXPECT_DOUBLE_EQ(work_of(*bench.model, profile, plan, 0).backward, whole.backward + whole.forward);
  plan.trainer.checkpoint_activations = false;
  plan.trainer.ranks = {2, 1, 1};
  double sum = 0;
  for (const int rank : {0, 1}) sum += work_of(*bench.model, profile, plan, rank).arithmetic();
  EXPECT_DOUBLE_EQ(sum, whole.arithmetic());
  plan.trainer.ranks = {1, 2, 1};
  EXPECT_EQ(work_of(*bench.model, profile, plan, 1).arithmetic(), 0);  // one sequence: the second has none
  plan.trainer.ranks = {1, 1, 1, 2};                                   // a layer each, and the last one the head
  const RankWork first = work_of(*bench.model, profile, plan, 0), last = work_of(*bench.model, profile, plan, 1);
  EXPECT_DOUBLE_EQ(last.forward - first.forward, 2 * tokens * head);
  EXPECT_DOUBLE_EQ(first.arithmetic() + last.arithmetic(), whole.arithmetic());
  EXPECT_DOUBLE_EQ(first.turns, 2);  // one micro-batch in two stages
  plan.sequences.assign(8, plan.sequences[0]);
  EXPECT_DOUBLE_EQ(work_of(*bench.model, profile, plan, 0).turns, 9.0 / 8);
}

// A compute copy has its profile's bytes: of int4 panels of 16 outputs, 256 bytes a group of 32 inputs and 32 of its scales, padded to 64 a panel.
TEST(StepPlan, ACopyInFewBitsHasItsOwnBytes) {
  const TrainBench bench(kLlama);
  StepPlan plan;
  plan.sequences = {TrainSequence::next_token(std::vector<std::int32_t>(11))};
  const Profile &bf16 = profile_by_name("cpu-bf16w"), &int4 = profile_by_name("cpu-int4-qat");
  const RankWork wide = work_of(*bench.model, bf16, plan, 0), few = work_of(*bench.model, int4, plan, 0);
  const double attention = 96 * (128 + 64 + 64 + 128), mlp = 3 * 96 * 264, head = 128 * 96, layers = 2;
  EXPECT_DOUBLE_EQ(wide.weight_bytes, 2 * (layers * (attention + mlp) + head));
  const double of_96 = 128 + 3 * 256, of_128 = 128 + 4 * 256, of_264 = 320 + 9 * 256;  // a panel by its inputs
  const double packed = layers * (16 * of_96 + 6 * of_128 + 2 * 17 * of_96 + 6 * of_264);
  EXPECT_DOUBLE_EQ(packed, static_cast<double>(weight_bytes(bench.model->manifest(), int4).few_bits));
  EXPECT_DOUBLE_EQ(few.weight_bytes, packed + 2 * head);
  EXPECT_DOUBLE_EQ(wide.optimizer_bytes - few.optimizer_bytes, 2 * layers * (attention + mlp) - packed);
}

}  // namespace
}  // namespace lockstep
