// A layer of multi-token prediction is trained over ranks, and over an adapter: the bits are those of one rank, its gradient under an adapter is that of its
// loss, and neither the weights nor the adapter that it reads depend on it.
#include <cmath>

#include "train/mtp_ranks_test_tools.h"

namespace lockstep {
namespace {

class MtpRanks : public testing::TestWithParam<bool> {};  // over an adapter

// Shares of sums, heads, experts and vocabulary; more ranks than leaves or sequences; stages, more than the model has segments too.
TEST_P(MtpRanks, StepsHaveTheBitsOfOneRank) {
  const LayerBench bench;
  for (const std::string profile : {"cpu-f32", "cpu-bf16w"}) {
    const LayerOutcome want = bench.train({.profile = profile, .adapted = GetParam()});
    EXPECT_GT(want.results[0].index_loss, 0);
    EXPECT_NE(want.results[0].loss, want.results[2].loss);
    std::vector<RankLayout> layouts{RankLayout{.tp = 3, .dp = 2}, RankLayout{.tp = 2, .ep = 2, .pp = 3}};
    if (profile == "cpu-f32")
      for (const RankLayout& more : {RankLayout{.tp = 2}, {.dp = 2}, {.ep = 2}, {.pp = 2}, {.dp = 5}}) layouts.push_back(more);
    for (const RankLayout& ranks : layouts)
      bench.expect_same(bench.train({.ranks = ranks, .profile = profile, .adapted = GetParam()}), want, fmt::format("{}, {}", profile, ranks.text()));
    bench.expect_same(bench.train({.ranks = {.tp = 2, .dp = 2, .pp = 2}, .profile = profile, .micro_batch = 1, .adapted = GetParam()}), want,
                      "micro-batches of one");
    bench.expect_same(bench.train({.ranks = {.tp = 2, .dp = 2}, .profile = profile, .micro_batch = 2, .backend = BackendKind::deferred, .adapted = GetParam()}),
                      want, "deferred");
  }
}

// The model's weights in shares, which the layer's step gathers; dealt by matrices where the model's optimizer wants whole ones.
TEST_P(MtpRanks, BesideWeightsInSharesTheBitsAreThoseOfOneRank) {
  const LayerBench bench;
  for (const std::string profile : {"cpu-f32", "cpu-bf16w"}) {
    const LayerOutcome want = bench.train({.profile = profile, .adapted = GetParam()});
    for (const RankLayout& ranks : {RankLayout{.dp = 3, .shard = RankShard::weights}, {.tp = 2, .dp = 2, .pp = 2, .shard = RankShard::weights}})
      bench.expect_same(bench.train({.ranks = ranks, .profile = profile, .micro_batch = 1, .adapted = GetParam()}), want, profile + ", " + ranks.text());
  }
  const OptimizerFamily& muon = *optimizer_named("dimuon");
  bench.expect_same(bench.train({.ranks = {.dp = 2, .shard = RankShard::weights}, .adapted = GetParam(), .optimizer = muon}),
                    bench.train({.adapted = GetParam(), .optimizer = muon}), "dimuon");
}

// The model's own step has pieces of the long sequence on each rank; the layer's, whole sequences.
TEST_P(MtpRanks, BesidePiecesOfSequencesTheBitsAreThoseOfOneRank) {
  const LayerBench bench(8, 2, 1600);
  const LayerOutcome want = bench.train({.loss = MtpLoss::ce, .adapted = GetParam()}, 1);
  for (const RankLayout& ranks : {RankLayout{.cp = 2}, {.tp = 2, .pp = 2, .cp = 2}})
    bench.expect_same(bench.train({.ranks = ranks, .loss = MtpLoss::ce, .adapted = GetParam()}, 1), want, ranks.text());
}

TEST_P(MtpRanks, EachLossAndOptimizerHasTheBitsOfOneRank) {
  const LayerBench bench;
  for (const MtpLoss loss : {MtpLoss::ce, MtpLoss::tv})
    bench.expect_same(bench.train({.ranks = {.tp = 2, .dp = 2}, .loss = loss, .adapted = GetParam()}), bench.train({.loss = loss, .adapted = GetParam()}),
                      loss == MtpLoss::ce ? "ce" : "tv");
  const OptimizerFamily& muon = *optimizer_named("dimuon");
  bench.expect_same(bench.train({.ranks = {.dp = 2, .pp = 2}, .adapted = GetParam(), .optimizer = muon}),
                    bench.train({.adapted = GetParam(), .optimizer = muon}), "dimuon");
}

INSTANTIATE_TEST_SUITE_P(Over, MtpRanks, testing::Bool(), [](const auto& info) { return std::string(info.param ? "adapter" : "weights"); });

// A trainer of another layout goes on with the bits, and the model's are those of a run without the layer.
TEST(MtpRanksState, GoesFromOneLayoutToAnother) {
  const LayerBench bench;
  const auto steps = [&](const RankLayout& layout, const TrainerState* from, int count) {
    Runtime runtime({.threads = 1}, bench.model, profile_by_name("cpu-f32"), 600);
    const auto ranks = std::make_shared<RankRuntimes>(runtime, layout);
    Trainer whole(runtime, bench.masters, {.ranks = layout}, ranks);
    MtpTrainer trainer(runtime, bench.layer, {.depths = 2}, {.ranks = layout}, ranks);
    if (from) trainer.restore(*from);
    std::vector<TrunkShare> trunk;
    for (const auto& part : whole.ranks().parts()) trunk.push_back({part->weights().get()});
    for (int i = 0; i < count; ++i) {
      trainer.forward_backward(trunk, bench.data);
      trainer.optim_step({});
    }
    return trainer.state();
  };
  const TrainerState want = steps({}, nullptr, 4), half = steps({.tp = 2, .pp = 2}, nullptr, 2), got = steps({.dp = 3}, &half, 2);
  EXPECT_EQ(difference(bench.model->mtp()->manifest(), got.masters, want.masters), "");
  EXPECT_EQ(got.step, 4);
  EXPECT_NE(difference(bench.model->mtp()->manifest(), half.masters, want.masters), "") << "the control";
  // A batch that is refused on one rank leaves no gradient on any.
  Runtime runtime({.threads = 1}, bench.model, profile_by_name("cpu-f32"), 600);
  const auto ranks = std::make_shared<RankRuntimes>(runtime, RankLayout{.dp = 2});
  MtpTrainer trainer(runtime, bench.layer, {.depths = 2}, {.ranks = {.dp = 2}}, ranks);
  EXPECT_THROW(trainer.forward_backward(std::vector<TrunkShare>(1), bench.data), Error);
  EXPECT_THROW(trainer.optim_step({}), Error);
}

// The layer reads the adapted model: hidden states, and logits where the head is adapted. Along random directions the loss changes as the gradient says.
TEST(MtpOverAdapter, TheGradientIsThatOfTheLossUnderTheAdapter) {
  const LayerBench bench(64, 6);  // all keys and experts are selected, so that nothing jumps
  const Manifest& manifest = bench.model->mtp()->manifest();
  Runtime runtime({.threads = 1}, bench.model, profile_by_name("cpu-f32"), 600);
  const auto weights = make_weight_set(runtime.backend, bench.model->manifest(), bench.masters, runtime.profile, 0);
  const auto layout = std::make_shared<const AdapterLayout>(bench.model->manifest(), kOverAll);
  const auto adapter = make_adapter(runtime.backend, layout, stirred(*layout, 1), 0);
  const auto at = [&](const WeightImages& layer, const AdapterWeights* over, WeightImages* gradient = nullptr) {
    MtpTrainer trainer(runtime, layer, {.depths = 2, .loss = MtpLoss::tv}, {});
    const MtpResult result = trainer.forward_backward(std::vector<TrunkShare>{{weights.get(), over}}, bench.data);
    if (gradient) *gradient = trainer.gradient_images();
    return result.loss;
  };
  WeightImages gradient, without;
  EXPECT_NE(at(bench.layer, adapter.get(), &gradient), at(bench.layer, nullptr, &without));
  int compared = 0, other = 0;
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    const Parameter& p = manifest.parameters()[i];
    if (!p.trained || p.indexer) continue;
    NamedUniform uniform(9, p.name);
    std::vector<float> direction(gradient[i].size());
    double along = 0, along_other = 0, size = 0;
    for (std::size_t j = 0; j < direction.size(); ++j) {
      direction[j] = bench.layer[i][j] == 0 ? 0 : uniform(j);  // padding stays as it is
      along += static_cast<double>(direction[j]) * static_cast<double>(gradient[i][j]);
      along_other += static_cast<double>(direction[j]) * static_cast<double>(without[i][j]);
      size += static_cast<double>(direction[j]) * static_cast<double>(direction[j]);
    }
    const auto loss_at = [&](double step) {
      WeightImages moved = bench.layer;
      for (std::size_t j = 0; j < direction.size(); ++j) moved[i][j] += static_cast<float>(step * static_cast<double>(direction[j]));
      return at(moved, adapter.get());
    };
    const double step = 2e-2 / std::sqrt(size), slope = (loss_at(step) - loss_at(-step)) / (2 * step);
    const double allowed = 2e-2 * std::max(std::fabs(slope), 2e-3 * std::sqrt(size));
    EXPECT_NEAR(slope, along, allowed) << p.name;
    other += std::fabs(slope - along_other) > allowed;
    ++compared;
  }
  EXPECT_GE(compared, 15);
  EXPECT_GE(other, 3) << "the control: the gradient without the adapter is another";
}

}  // namespace
}  // namespace lockstep
