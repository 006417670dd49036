// A model that is trained jointly with its layer of multi-token prediction over ranks has the bits of one rank, its own state and the layer's: shares of
// sums, heads, experts and vocabulary, stages that send gradients back, replicas, weights in shares.
#include <gtest/gtest.h>

#include <algorithm>

#include "train/mtp_trainer.h"
#include "train/state_test_tools.h"
#include "train/trainer.h"

namespace lockstep {
namespace {

struct JointCase {
  RankLayout ranks = {};
  MtpLoss loss = MtpLoss::both;
  std::string profile = "cpu-f32";
  std::int64_t micro_batch = 0;
  bool checkpoint = false;
  BackendKind backend = BackendKind::cpu;
  OptimizerFamily optimizer = adamw();
};

struct JointSteps {
  TrainerState model, layer;
  std::vector<double> losses;
};

class JointRanks {
 public:
  JointRanks() {
    Json json = Json::parse(kGlm);
    json["num_nextn_predict_layers"] = 1;
    model = make_model(json);
    masters = initial_weights(model->manifest(), 1, 0.08);
    layer = initial_weights(model->mtp()->manifest(), 2, 0.08);
    data = sequences(96, 4);
    data.erase(data.begin() + 1);  // the long one; the first is too short for a chain of three
  }
  // Without clips, so that a parameter's moments depend on its own gradients alone. `joint` false: the model is read alone.
  JointSteps train(const JointCase& c, int steps = 2, bool joint = true) const {
    Runtime runtime({.kind = c.backend, .threads = 1}, model, profile_by_name(c.profile), 600);
    const TrainerOptions options{
        .micro_batch = c.micro_batch, .checkpoint_activations = c.checkpoint, .accumulate = true, .optimizer = c.optimizer, .ranks = c.ranks};
    const auto ranks = std::make_shared<RankRuntimes>(runtime, c.ranks);
    Trainer whole(runtime, masters, options, ranks);
    MtpTrainer trainer(runtime, layer, {.depths = 3, .train_indexer = true, .loss = c.loss}, options, ranks);
    JointSteps out;
    for (int step = 0; step < steps; ++step) {
      whole.forward_backward(data, {});
      std::vector<TrunkShare> trunk;
      for (const auto& part : whole.ranks().parts()) {
        trunk.push_back({part->weights().get(), nullptr, joint ? part->more_gradients() : nullptr});
        EXPECT_EQ(trunk.back().gradients != nullptr, joint);
      }
      out.losses.push_back(trainer.forward_backward(trunk, data).loss);
      trainer.optim_step({.learning_rate = 3e-3, .max_norm = 0});
      whole.optim_step({.learning_rate = 1e-3, .max_norm = 0, .router_bias_rate = 1e-3});
    }
    out.model = whole.state().all();
    out.layer = trainer.state();
    return out;
  }
  void expect_same(const JointCase& c, const JointSteps& want, const std::string& what) const {
    SCOPED_TRACE(what);
    const JointSteps got = train(c);
    expect_same_state(model->manifest(), got.model, want.model);
    expect_same_state(model->mtp()->manifest(), got.layer, want.layer);
    EXPECT_EQ(got.losses, want.losses);
  }
  std::shared_ptr<const Model> model;
  WeightImages masters, layer;
  std::vector<TrainSequence> data;
};

TEST(MtpJointRanks, StepsHaveTheBitsOfOneRank) {
  const JointRanks bench;
  const JointSteps want = bench.train({});
  for (const RankLayout& ranks : {RankLayout{.tp = 2}, {.tp = 3, .dp = 2}, {.ep = 2}, {.pp = 2}, {.pp = 3}, {.cp = 2}, {.tp = 2, .ep = 2, .pp = 2}})
    bench.expect_same({.ranks = ranks}, want, ranks.text());
  bench.expect_same({.ranks = {.tp = 2, .pp = 2}, .micro_batch = 1, .checkpoint = true}, want, "micro-batches of one, recomputed");
  bench.expect_same({.ranks = {.tp = 2, .pp = 2}, .backend = BackendKind::deferred}, want, "deferred");
  const JointCase of_bf16{.profile = "cpu-bf16w"};
  bench.expect_same({.ranks = {.tp = 2, .dp = 2, .pp = 2}, .profile = of_bf16.profile}, bench.train(of_bf16), of_bf16.profile);
}

// So what a rank left out would be seen: no parameter that a step moves has the moments that it has without the layer's losses.
TEST(MtpJointRanks, EachParameterIsMovedByTheLayersLosses) {
  const JointRanks bench;
  const JointSteps joint = bench.train({}, 1), apart = bench.train({}, 1, false);
  const std::vector<Parameter>& parameters = bench.model->manifest().parameters();
  int moved = 0;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const std::vector<float>& moments = joint.model.first_moments[i];
    if (std::all_of(moments.begin(), moments.end(), [](float m) { return m == 0; })) continue;
    EXPECT_FALSE(same_bits(moments, apart.model.first_moments[i])) << parameters[i].name;
    ++moved;
  }
  EXPECT_GE(moved, 30);
  EXPECT_EQ(apart.losses, joint.losses);
  EXPECT_NE(bench.train({}, 2, false).losses, bench.train({}).losses) << "the model that is read in the second step is another";
}

// Of the cross-entropy alone, and of the total variation alone, for which a micro-batch of the shortest text has no gradient to send.
TEST(MtpJointRanks, EachLossHasTheBitsOfOneRank) {
  const JointRanks bench;
  for (const MtpLoss loss : {MtpLoss::ce, MtpLoss::tv})
    bench.expect_same({.ranks = {.tp = 2, .pp = 2}, .loss = loss, .micro_batch = 1}, bench.train({.loss = loss}), loss == MtpLoss::ce ? "ce" : "tv");
}

// Replicas keep rows of weights and accumulators alone, which the layer's part of a gradient leaves to, too; dealt by matrices where an optimizer wants
// whole ones.
TEST(MtpJointRanks, WithWeightsInSharesTheBitsAreThoseOfOneRank) {
  const JointRanks bench;
  const JointSteps want = bench.train({});
  for (const RankLayout& ranks : {RankLayout{.dp = 3, .shard = RankShard::weights}, {.tp = 2, .dp = 2, .pp = 2, .shard = RankShard::weights}})
    bench.expect_same({.ranks = ranks, .micro_batch = 1}, want, ranks.text());
  const OptimizerFamily& muon = *optimizer_named("dimuon");
  bench.expect_same({.ranks = {.dp = 2, .shard = RankShard::weights}, .optimizer = muon}, bench.train({.optimizer = muon}), "dimuon");
}

}  // namespace
}  // namespace lockstep
