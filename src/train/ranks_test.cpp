// A run laid out over ranks has the bits of one rank: log-probabilities, losses, gradients, masters, moments, over several steps.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "model/parameter_share.h"
#include "numerics/low_bit.h"
#include "parallel/memory_wire_test_tools.h"
#include "parallel/some_ranks_test_tools.h"
#include "train/state_test_tools.h"
#include "train/train_test_tools.h"
#include "train/trainer.h"

namespace lockstep {
namespace {

struct Outcome {
  std::vector<ForwardBackwardResult> results;
  std::vector<WeightImages> gradients;
  std::vector<double> norms;
  TrainerState state;
  WeightImages published;
  ForwardCounts work;
  CommunicatorCounters traffic;
};

struct Case {
  RankLayout ranks;
  std::string profile = "cpu-f32";
  BackendKind backend = BackendKind::cpu;
  bool indexer = false, checkpoint = false;
  std::int64_t micro_batch = 0;
  OptimizerFamily optimizer = adamw();
};

Outcome run(const TrainBench& bench, const Case& c, const std::vector<TrainSequence>& data, int steps = 2, std::unique_ptr<Ranks> ranks = nullptr) {
  Runtime runtime({.kind = c.backend, .threads = 1}, bench.model, profile_by_name(c.profile), 600);
  Trainer trainer(
      runtime, bench.masters,
      {.micro_batch = c.micro_batch, .checkpoint_activations = c.checkpoint, .train_indexer = c.indexer, .optimizer = c.optimizer, .ranks = c.ranks},
      std::make_shared<RankRuntimes>(runtime, c.ranks, std::move(ranks)));
  Outcome outcome;
  for (int step = 0; step < steps; ++step) {
    outcome.results.push_back(trainer.forward_backward(data, {}, {.dense_attention = c.indexer && step == 0, .index_loss = c.indexer}));
    outcome.gradients.push_back(trainer.gradient_images());
    outcome.norms.push_back(trainer.optim_step({.weight_decay = 0.1, .router_bias_rate = 1e-3}).gradient_norm);
  }
  outcome.state = trainer.state().all();
  for (const std::size_t i : {std::size_t{0}, std::size_t{3}}) {
    EXPECT_EQ(trainer.state().image(StatePart::master, i), outcome.state.masters[i]);
    EXPECT_EQ(trainer.state().image(StatePart::second_moment, i), outcome.state.second_moments[i]);
  }
  outcome.work = trainer.ranks().work();
  outcome.traffic = trainer.ranks().traffic();
  outcome.published = weight_images(runtime.backend, bench.model->manifest(), *trainer.weights(), runtime.profile);
  return outcome;
}

void expect_same(const Manifest& manifest, const Outcome& got, const Outcome& want, const std::string& what) {
  SCOPED_TRACE(what);
  for (std::size_t step = 0; step < want.results.size(); ++step) {
    EXPECT_EQ(got.results[step].logprobs, want.results[step].logprobs);
    EXPECT_EQ(got.results[step].entropies, want.results[step].entropies);
    EXPECT_EQ(got.results[step].loss, want.results[step].loss);
    EXPECT_EQ(got.results[step].index_loss, want.results[step].index_loss);
    EXPECT_EQ(got.results[step].rows, want.results[step].rows);
    EXPECT_EQ(got.results[step].scored, want.results[step].scored);
    EXPECT_EQ(got.norms[step], want.norms[step]);
    EXPECT_EQ(difference(manifest, got.gradients[step], want.gradients[step]), "") << "gradients of step " << step;
  }
  expect_same_state(manifest, got.state, want.state);
  EXPECT_EQ(difference(manifest, got.published, want.published), "") << "weights";
}

class TrainerRanks : public ::testing::TestWithParam<const char*> {};

// Profiles differ in what weights and rows are rounded to, layouts in who has them: cpu-f32 meets every layout, another profile those that cut most.
// Tests of optimizers, of few bits, of weights in shares and of ranks elsewhere need no text of two blocks of positions: who adds a block is as in the tests
// before them.
constexpr int kOneBlock = 150;

TEST_P(TrainerRanks, DataParallelStepsHaveTheBitsOfOneRank) {
  const TrainBench bench(GetParam());
  const std::vector<TrainSequence> data = sequences(bench.model->facts().vocabulary);
  for (const std::string profile : {"cpu-f32", "cpu-bf16w"}) {
    const Outcome want = run(bench, {.profile = profile}, data);
    for (const int dp : profile == "cpu-f32" ? std::vector<int>{2, 3, 7} : std::vector<int>{7})  // more ranks than sequences too
      expect_same(bench.model->manifest(), run(bench, {.ranks = {1, dp, 1}, .profile = profile}, data), want, fmt::format("{}, dp={}", profile, dp));
    expect_same(bench.model->manifest(),
                run(bench, {.ranks = {1, 2, 1}, .profile = profile, .backend = BackendKind::deferred, .checkpoint = true, .micro_batch = 1}, data), want,
                "deferred, checkpointed, micro-batches of one");
  }
  if (!bench.model->has_indexer()) return;
  const Outcome want = run(bench, {.indexer = true}, data);
  expect_same(bench.model->manifest(), run(bench, {.ranks = {1, 3, 1}, .indexer = true}, data), want, "indexer");
}

TEST_P(TrainerRanks, TensorAndExpertParallelStepsHaveTheBitsOfOneRank) {
  const TrainBench bench(GetParam());
  const std::vector<TrainSequence> data = sequences(bench.model->facts().vocabulary, 4);
  for (const std::string profile : {"cpu-f32", "cpu-bf16w"}) {
    const Outcome want = run(bench, {.profile = profile}, data);
    std::vector<RankLayout> layouts{{3, 1, 1}, {1, 1, 3}, {2, 2, 2}, {11, 1, 1}};
    if (profile == "cpu-f32") layouts.insert(layouts.end(), {{2, 1, 1}, {4, 1, 1}, {8, 1, 1}, {1, 1, 2}, {2, 1, 2}, {2, 2, 1}, {3, 2, 1}});
    for (const RankLayout& ranks : layouts)
      expect_same(bench.model->manifest(), run(bench, {.ranks = ranks, .profile = profile}, data), want, fmt::format("{}, {}", profile, ranks.text()));
    expect_same(bench.model->manifest(),
                run(bench, {.ranks = {2, 2, 1}, .profile = profile, .backend = BackendKind::deferred, .checkpoint = true, .micro_batch = 1}, data), want,
                "deferred, checkpointed, micro-batches of one");
  }
  if (!bench.model->has_indexer()) return;
  const Outcome want = run(bench, {.indexer = true}, data);
  expect_same(bench.model->manifest(), run(bench, {.ranks = {2, 2, 2}, .indexer = true}, data), want, "indexer");
}

// As many layers as `layers`, all alike but the first ones.
std::string deeper(std::string config, int layers) {
  const std::string key = "\"num_hidden_layers\": ";
  const std::size_t at = config.find(key) + key.size();
  return config.replace(at, config.find(',', at) - at, std::to_string(layers));
}

// Stages of a pipeline: runs of segments, more stages than segments too; a tied table in the first and the last (kLlama). The kernels' counts of all
// stages together are those of one rank.
TEST_P(TrainerRanks, StagesOfAPipelineHaveTheBitsOfOneRank) {
  const TrainBench bench(GetParam() == std::string(kGlm) ? GetParam() : deeper(GetParam(), 5));
  const std::vector<TrainSequence> data = sequences(bench.model->facts().vocabulary);
  const Manifest& manifest = bench.model->manifest();
  for (const std::string profile : {"cpu-f32", "cpu-bf16w"}) {
    const Outcome want = run(bench, {.profile = profile}, data);
    std::vector<RankLayout> layouts{{1, 1, 1, 2}, {1, 2, 1, 3}, {2, 1, 1, 2}};
    if (profile == "cpu-f32") layouts.insert(layouts.end(), {{1, 1, 1, 3}, {1, 1, 1, 7}, {1, 1, 3, 2}, {2, 2, 2, 2}});
    for (const RankLayout& ranks : layouts) {
      const Outcome got = run(bench, {.ranks = ranks, .profile = profile}, data);
      expect_same(manifest, got, want, fmt::format("{}, {}", profile, ranks.text()));
      if (ranks.model() == 1) {
        EXPECT_EQ(got.work, want.work) << ranks.text();
      }
    }
    if (profile == "cpu-f32")
      for (const std::int64_t micro_batch : {1, 2})
        expect_same(manifest, run(bench, {.ranks = {1, 1, 1, 3}, .profile = profile, .micro_batch = micro_batch}, data), want,
                    fmt::format("{}, micro-batches of {}", profile, micro_batch));
    expect_same(manifest, run(bench, {.ranks = {2, 1, 1, 2}, .profile = profile, .backend = BackendKind::deferred, .checkpoint = true, .micro_batch = 1}, data),
                want, "deferred, checkpointed, micro-batches of one");
  }
  const Case whole{.profile = "cpu-fp8", .optimizer = *optimizer_named("dimuon")};
  Case stages = whole;
  stages.ranks = {1, 2, 1, 2};
  expect_same(manifest, run(bench, stages, data), run(bench, whole, data), "whole matrices in 8 bits");
  if (!bench.model->has_indexer()) return;
  const Outcome want = run(bench, {.indexer = true}, data);
  for (const RankLayout& ranks : {RankLayout{1, 1, 1, 2}, {2, 1, 2, 2}})
    expect_same(manifest, run(bench, {.ranks = ranks, .indexer = true}, data), want, "indexer");
}

// Each matrix is one data-parallel rank's, of stacked experts each expert's; tensor-parallel ranks put the parts of one together.
TEST_P(TrainerRanks, WholeMatricesAreSteppedWithTheBitsOfOneRank) {
  const TrainBench bench(GetParam());
  const std::vector<TrainSequence> data = sequences(bench.model->facts().vocabulary, 3, kOneBlock);
  const OptimizerFamily& dimuon = *optimizer_named("dimuon");
  for (const char* profile : {"cpu-bf16w", "cpu-fp8"}) {
    const Outcome want = run(bench, {.profile = profile, .optimizer = dimuon}, data);
    std::vector<RankLayout> layouts = {{1, 2, 3}, {2, 2, 1}};
    if (profile == std::string("cpu-bf16w")) layouts.insert(layouts.end(), {{1, 7, 1}, {3, 1, 1}, {8, 1, 1}, {2, 1, 2, 2}});
    for (const RankLayout& ranks : layouts)
      expect_same(bench.model->manifest(), run(bench, {.ranks = ranks, .profile = profile, .optimizer = dimuon}, data), want, profile + (" " + ranks.text()));
    EXPECT_NE(difference(bench.model->manifest(), run(bench, {.ranks = {1, 2, 1}, .profile = profile}, data).state.masters, want.state.masters), "");
  }
  const Outcome want = run(bench, {.optimizer = dimuon}, data);
  expect_same(bench.model->manifest(), run(bench, {.ranks = {2, 2, 1}, .backend = BackendKind::deferred, .optimizer = dimuon}, data), want, "deferred");
}

// Scales are those of the whole matrix wherever it is cut: where a leaf of the sum ends inside a group, leaves stay together (264 inputs of kLlama
// are no two shares of whole groups, 320 of kQwen are two of five). In 8 bits outputs share scales too, and so do the rows that meet them.
TEST_P(TrainerRanks, QuantisedWeightsHaveTheBitsOfOneRank) {
  const TrainBench bench(GetParam());
  const std::vector<TrainSequence> data = sequences(bench.model->facts().vocabulary, 4, kOneBlock);
  for (const char* profile : {"cpu-int4-qat", "cpu-fp8", "cpu-mxfp8", "cpu-mxfp8-experts"}) {
    if (profile_by_name(profile).weight_bits & kLowBitExperts && bench.model->facts().experts_a_token == 0) continue;
    const Outcome want = run(bench, {.profile = profile}, data);
    std::vector<RankLayout> layouts{{2, 1, 1}, {8, 1, 1}, {2, 2, 2}};
    if (profile == std::string("cpu-int4-qat")) layouts = {{1, 7, 1}, {2, 1, 1}, {3, 1, 1}, {8, 1, 1}, {1, 1, 3}, {2, 2, 2}, {11, 1, 1}};
    for (const RankLayout& ranks : layouts)
      expect_same(bench.model->manifest(), run(bench, {.ranks = ranks, .profile = profile}, data), want, profile + (" " + ranks.text()));
    expect_same(bench.model->manifest(),
                run(bench, {.ranks = {2, 2, 1}, .profile = profile, .backend = BackendKind::deferred, .checkpoint = true, .micro_batch = 1}, data), want,
                profile + std::string(" deferred, checkpointed, micro-batches of one"));
  }
}

// Weights and accumulators in shares, whole a segment at a time: ranks with fewer micro-batches than others, and with none; every profile that trains;
// segments that are computed again; stages of a pipeline, whose passes are idle where other replicas have more.
TEST_P(TrainerRanks, WeightsInSharesHaveTheBitsOfOneRank) {
  const TrainBench bench(GetParam() == std::string(kGlm) ? GetParam() : deeper(GetParam(), 3));
  const std::vector<TrainSequence> data = sequences(bench.model->facts().vocabulary, 5, kOneBlock);
  const Manifest& manifest = bench.model->manifest();
  const auto in_shares = [](RankLayout ranks) {
    ranks.shard = RankShard::weights;
    return ranks;
  };
  for (const std::string profile : {"cpu-f32", "cpu-bf16w"}) {
    const Outcome want = run(bench, {.profile = profile}, data);
    std::vector<RankLayout> layouts{{1, 3, 1}, {1, 2, 3}, {2, 2, 2, 2}};
    if (profile == "cpu-f32") layouts.insert(layouts.end(), {{1, 2, 1}, {1, 7, 1}, {2, 2, 1}, {1, 2, 1, 2}, {1, 2, 1, 7}});
    for (const RankLayout& ranks : layouts)
      expect_same(manifest, run(bench, {.ranks = in_shares(ranks), .profile = profile}, data), want, fmt::format("{}, {}", profile, ranks.text()));
    for (const RankLayout& ranks : profile == "cpu-f32" ? std::vector<RankLayout>{{1, 2, 1}, {1, 2, 1, 3}} : std::vector<RankLayout>{{1, 2, 1, 3}}) {
      const Case again{.ranks = in_shares(ranks), .profile = profile, .checkpoint = true, .micro_batch = 1};
      expect_same(manifest, run(bench, again, data), want, fmt::format("{}, {}, checkpointed, micro-batches of one", profile, ranks.text()));
      Case deferred = again;
      deferred.backend = BackendKind::deferred;
      expect_same(manifest, run(bench, deferred, data), want, fmt::format("{}, {}, deferred", profile, ranks.text()));
    }
  }
  for (const char* profile : {"cpu-int4-qat", "cpu-fp8", "cpu-mxfp8"}) {
    const Outcome want = run(bench, {.profile = profile}, data);
    for (const int dp : {2, 7})
      expect_same(manifest, run(bench, {.ranks = in_shares({1, dp, 1}), .profile = profile}, data), want, fmt::format("{}, dp={}", profile, dp));
  }
  const Case whole{.profile = "cpu-bf16w", .optimizer = *optimizer_named("dimuon")};
  Case shared = whole;
  shared.ranks = in_shares({2, 2, 1});
  expect_same(manifest, run(bench, shared, data), run(bench, whole, data), "whole matrices");
  if (!bench.model->has_indexer()) return;
  const Outcome want = run(bench, {.indexer = true}, data);
  expect_same(manifest, run(bench, {.ranks = in_shares({1, 3, 1}), .indexer = true}, data), want, "indexer");
  expect_same(manifest, run(bench, {.ranks = in_shares({1, 2, 1, 2}), .indexer = true, .checkpoint = true}, data), want, "indexer, checkpointed stages");
}

INSTANTIATE_TEST_SUITE_P(Families, TrainerRanks, ::testing::Values(kGlm, kLlama, kQwen));

// Owners that hold some ranks each, and learn of the others' through their groups alone.
TEST(RanksElsewhere, AnOwnerOfSomeRanksHasTheBitsOfAll) {
  const TrainBench bench(kLlama);
  const std::vector<TrainSequence> data = sequences(bench.model->facts().vocabulary, 3, kOneBlock);
  const Outcome want = run(bench, {.profile = "cpu-bf16w"}, data);
  for (const auto& [layout, counts] : {std::pair{RankLayout{2, 2, 1}, std::vector<int>{1, 3}},
                                       {RankLayout{1, 3, 1}, {1, 1, 1}},
                                       {RankLayout{2, 1, 1}, {1, 1}},
                                       {RankLayout{1, 1, 1, 2}, {1, 1}},
                                       {RankLayout{.dp = 3, .shard = RankShard::weights}, {1, 2}}}) {
    const Case c{.ranks = layout, .profile = "cpu-bf16w"};
    const Outcome all = run(bench, c, data);
    std::vector<Outcome> got(counts.size());
    beside_each_other(layout, counts, [&](std::size_t owner, std::unique_ptr<Ranks> ranks) { got[owner] = run(bench, c, data, 2, std::move(ranks)); });
    for (std::size_t owner = 0; owner < got.size(); ++owner) {
      expect_same(bench.model->manifest(), got[owner], want, fmt::format("{}, owner {}", layout.text(), owner));
      EXPECT_EQ(got[owner].work, all.work);
      EXPECT_EQ(got[owner].traffic.bytes, all.traffic.bytes);
      EXPECT_GT(got[owner].traffic.bytes, 0);
    }
  }
}

// Over processes accumulators travel in fewer bytes.
TEST(RanksElsewhere, ProcessesHaveTheBitsOfOneRank) {
  for (const char* family : {kGlm, kLlama}) {
    const TrainBench bench(family);
    const std::vector<TrainSequence> data = sequences(bench.model->facts().vocabulary, 4, kOneBlock);
    const Outcome want = run(bench, {.profile = "cpu-bf16w"}, data);
    for (const auto& [layout, processes] : {std::pair{RankLayout{1, 2, 1}, 2},
                                            {{1, 3, 1}, 3},
                                            {{2, 2, 1}, 2},
                                            {{.dp = 2, .pp = 2}, 2},
                                            {{.dp = 3, .shard = RankShard::weights}, 2},
                                            {{.tp = 2, .dp = 2, .shard = RankShard::weights}, 2}}) {
      const Case c{.ranks = layout, .profile = "cpu-bf16w"};
      std::vector<Outcome> got(static_cast<std::size_t>(processes));
      as_processes(processes, [&](ProcessMail& mail) {
        got[static_cast<std::size_t>(mail.process())] = run(bench, c, data, 2, std::make_unique<ProcessRanks>(layout, mail));
      });
      const CommunicatorCounters alike = run(bench, c, data).traffic;
      for (const Outcome& one : got) {
        expect_same(bench.model->manifest(), one, want, layout.text());
        EXPECT_EQ(one.traffic.bytes, alike.bytes);
      }
    }
  }
}

// The control: another summation (another leaf count) is another outcome, in data-parallel ranks too.
TEST(RanksControl, AnotherLeafCountIsSeen) {
  const TrainBench bench(kLlama);
  const std::vector<TrainSequence> data = sequences(bench.model->facts().vocabulary);
  const Outcome want = run(bench, {}, data, 1);
  for (const RankShard shard : {RankShard::state, RankShard::weights}) {
    const Outcome got = run(bench, {.ranks = {.dp = 2, .shard = shard}, .profile = "study-leaves-f32"}, data, 1);
    EXPECT_NE(difference(bench.model->manifest(), got.state.masters, want.state.masters), "");
  }
}

TEST(RanksState, SavedInOneLayoutResumesInAnother) {
  const TrainBench bench(kLlama);
  const std::vector<TrainSequence> data = sequences(bench.model->facts().vocabulary, 3, kOneBlock);
  const TrainerState whole = run(bench, {.profile = "cpu-bf16w"}, data, 4).state;
  TrainerState state = run(bench, {.ranks = {1, 2, 1}, .profile = "cpu-bf16w"}, data, 1).state;
  for (const RankLayout& ranks : {RankLayout{1, 1, 1, 2}, RankLayout{.dp = 3, .shard = RankShard::weights}, RankLayout{1, 1, 1}}) {
    Runtime runtime({.threads = 1}, bench.model, profile_by_name("cpu-bf16w"), 600);
    Trainer trainer(runtime, bench.masters, {.ranks = ranks});
    trainer.restore(state);
    trainer.forward_backward(data, {});
    trainer.optim_step({.weight_decay = 0.1, .router_bias_rate = 1e-3});
    state = trainer.state().all();
  }
  EXPECT_EQ(difference(bench.model->manifest(), state.masters, whole.masters), "");
  EXPECT_EQ(difference(bench.model->manifest(), state.second_moments, whole.second_moments), "");
}

TEST(RanksMemory, OptimizerStateIsSharedOut) {
  const TrainBench bench(kGlm);
  const auto optimizer_bytes = [&](int dp) {
    Runtime runtime({.threads = 1}, bench.model, profile_by_name("cpu-bf16w"), 600);
    Trainer trainer(runtime, bench.masters, {.ranks = {1, dp, 1}});
    std::int64_t sum = 0, most = 0;
    for (int rank = 0; rank < dp; ++rank) {
      const std::int64_t bytes = trainer.ranks().memory(rank).current(MemoryCategory::optimizer);
      sum += bytes;
      most = std::max(most, bytes);
    }
    return std::pair(sum, most);
  };
  const auto one = optimizer_bytes(1), four = optimizer_bytes(4);
  EXPECT_EQ(four.first, one.first);            // every row has one owner
  EXPECT_LT(four.second, one.first * 3 / 10);  // and no rank much more than a quarter
}

// Weights, gradients and state of a rank are at most its part of them and two segments, whole; without shares of the weights a rank holds more than that.
TEST(RanksMemory, WeightsInSharesTakeAPartAndTwoSegments) {
  const TrainBench bench(deeper(kQwen, 8));
  const Manifest& manifest = bench.model->manifest();
  const std::vector<TrainSequence> data = sequences(bench.model->facts().vocabulary, 3, kOneBlock);
  constexpr std::array kOfTheModel{MemoryCategory::weights, MemoryCategory::gradients, MemoryCategory::optimizer};
  for (const std::string profile : {"cpu-f32", "cpu-bf16w"}) {
    std::int64_t most_weights = 0;  // of the newest layout
    const auto most_of_a_rank = [&](const RankLayout& ranks) {
      most_weights = 0;
      Runtime runtime({.threads = 1}, bench.model, profile_by_name(profile), 600);
      const std::int64_t tables = runtime.backend.device().memory().current(MemoryCategory::weights);  // of rope
      Trainer trainer(runtime, bench.masters, {.micro_batch = 1, .ranks = ranks});
      for (int step = 0; step < 2; ++step) {
        trainer.forward_backward(data, {});
        trainer.optim_step({});
      }
      std::int64_t most = 0;
      for (int rank = 0; rank < ranks.size(); ++rank) {
        std::int64_t sum = -tables;
        for (const MemoryCategory category : kOfTheModel) sum += trainer.ranks().memory(rank).peak(category);
        most = std::max(most, sum);
        most_weights = std::max(most_weights, trainer.ranks().memory(rank).peak(MemoryCategory::weights) - tables);
      }
      return most;
    };
    // Of a segment the compute copy and accumulators.
    std::vector<std::int64_t> of_segment(static_cast<std::size_t>(bench.model->segments()));
    std::int64_t row = 0;  // what dealing in whole rows may give a rank above its part: compute copies, master, moments, gradient and accumulators of one
    for (std::size_t i = 0; i < manifest.parameters().size(); ++i) {
      const Parameter& p = manifest.parameters()[i];
      of_segment[static_cast<std::size_t>(p.segment)] += p.size() * (compute_dtype(p, profile_by_name(profile)) == DType::bf16 ? 2 : 4) + p.size() * 24;
      row += parameter_share(p, static_cast<ParameterId>(i), 0, 1).width * (2 * 4 + 4 + 8 + 4 + 24);
    }
    std::sort(of_segment.rbegin(), of_segment.rend());
    const std::int64_t one = most_of_a_rank({}), weights_of_one = most_weights;
    for (const int dp : {2, 4}) {
      const std::int64_t allowed = one / dp + of_segment[0] + of_segment[1] + row;
      EXPECT_LE(most_of_a_rank({.dp = dp, .shard = RankShard::weights}), allowed) << profile << ", dp=" << dp;
      // Compute copies alone, of which accumulators would hide much: 4 bytes of 28 a weight in fp32.
      if (dp == 4 && profile == "cpu-f32") {
        EXPECT_LE(most_weights, weights_of_one / dp + (of_segment[0] + of_segment[1]) / 7 + row / 6);
      }
      EXPECT_GT(most_of_a_rank({.dp = dp}), allowed) << profile << ", dp=" << dp;
    }
  }
}

TEST(RanksMemory, ARankHoldsItsShareOfTheModel) {
  constexpr std::array kShared{MemoryCategory::weights, MemoryCategory::optimizer, MemoryCategory::cache};
  for (const auto& [config, layout] : {std::pair{kLlama, RankLayout{4, 1, 1}}, {kQwen, {2, 1, 1}}, {kGlm, {2, 1, 2}}, {kQwen, {1, 1, 1, 2}}}) {
    const TrainBench bench(config);
    const std::vector<TrainSequence> data = sequences(bench.model->facts().vocabulary, 3);
    const auto most_of_a_rank = [&](const RankLayout& ranks) {  // of each category
      Runtime runtime({.threads = 1}, bench.model, profile_by_name("cpu-f32"), 600);
      const std::int64_t table = runtime.backend.device().memory().current(MemoryCategory::weights);  // of rope
      Trainer trainer(runtime, bench.masters, {.ranks = ranks});
      trainer.forward_backward(data, {});
      trainer.optim_step({});
      std::array<std::int64_t, kShared.size()> most{};
      for (std::size_t i = 0; i < kShared.size(); ++i) {
        for (int rank = 0; rank < ranks.size(); ++rank) most[i] = std::max(most[i], trainer.ranks().memory(rank).current(kShared[i]));
        if (kShared[i] == MemoryCategory::weights) most[i] -= table;
      }
      return most;
    };
    const auto of_one = most_of_a_rank({}), of_ranks = most_of_a_rank(layout);
    for (std::size_t i = 0; i < kShared.size(); ++i) {
      const MemoryCategory category = kShared[i];
      if (category == MemoryCategory::cache && config == kGlm) continue;  // one entry serves all heads
      const std::int64_t one = of_one[i], most = of_ranks[i];
      EXPECT_LT(most, one * 7 / 10) << bench.model->family() << ", " << kMemoryCategoryNames[static_cast<int>(category)];
      if (category != MemoryCategory::cache || layout.pp == 1) {  // a stage's is of a micro-batch
        EXPECT_GT(most, one / layout.replica() - 1);
      }
    }
  }
}

TEST(RanksFailure, ABadSequenceIsAnErrorAndTheTrainerGoesOn) {
  const TrainBench bench(kLlama);
  for (const RankShard shard : {RankShard::state, RankShard::weights}) {
    Runtime runtime({.threads = 1}, bench.model, profile_by_name("cpu-f32"), 600);
    Trainer trainer(runtime, bench.masters, {.ranks = {.dp = 3, .shard = shard}});
    std::vector<TrainSequence> data = sequences(bench.model->facts().vocabulary, 3);
    data[2].tokens[0] = 100000;
    EXPECT_THROW(trainer.forward_backward(data, {}), Error);
    EXPECT_THROW(trainer.optim_step({}), Error);
    data[2].tokens[0] = 1;
    trainer.forward_backward(data, {});
    trainer.optim_step({});
    EXPECT_EQ(trainer.step(), 1);
  }
}

// A weight that is no number is met by one rank alone, the only one that has it: the others do not wait for ever.
TEST(RanksFailure, ANumberThatFailsOnOneRankReleasesTheOthers) {
  for (const RankLayout& ranks : {RankLayout{1, 2, 1}, {1, 1, 1, 2}, {1, 2, 1, 2}, {.dp = 3, .shard = RankShard::weights}})
    for (const bool first : {false, true}) {
      TrainBench bench(kQwen);
      const std::size_t broken = first ? 0 : static_cast<std::size_t>(bench.model->facts().head);
      std::fill(bench.masters[broken].begin(), bench.masters[broken].end(), std::numeric_limits<float>::infinity());
      Runtime runtime({.threads = 1}, bench.model, profile_by_name("cpu-f32"), 600);
      Trainer trainer(runtime, bench.masters, {.ranks = ranks});
      try {
        trainer.forward_backward(sequences(bench.model->facts().vocabulary, 2), {});
        FAIL() << "an infinite weight was not seen over " << ranks.text();
      } catch (const Error& e) {
        EXPECT_EQ(e.code(), ErrorCode::numeric) << e.what();
      }
      EXPECT_THROW(trainer.optim_step({}), Error);
      EXPECT_THROW(trainer.score(sequences(bench.model->facts().vocabulary, 2)), Error);
    }
}

}  // namespace
}  // namespace lockstep
