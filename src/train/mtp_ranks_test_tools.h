// Steps of a model, or of an adapter over it, and of its layer of multi-token prediction, over any ranks. Tests only.
//   const LayerBench bench; bench.expect_same(bench.train({.ranks = {.dp = 2}}), bench.train({}), "dp=2");
#pragma once
#include <gtest/gtest.h>

#include "model/adapter_test_tools.h"
#include "train/adapter_trainer.h"
#include "train/mtp_trainer.h"
#include "train/state_test_tools.h"
#include "train/train_test_tools.h"
#include "train/trainer.h"

namespace lockstep {

struct LayerCase {
  RankLayout ranks = {};
  std::string profile = "cpu-f32";
  MtpLoss loss = MtpLoss::both;
  std::int64_t micro_batch = 0;
  BackendKind backend = BackendKind::cpu;
  bool adapted = false;
  OptimizerFamily optimizer = adamw();
};

struct LayerOutcome {
  std::vector<MtpResult> results;
  std::vector<double> norms;
  WeightImages gradient, published;
  TrainerState state;
  WeightImages trunk;  // what is trained of the model
};

inline constexpr AdapterSettings kOverAll{.rank = 4, .alpha = 7, .attention = true, .mlp = true, .unembedding = true};

// Three steps of a model, or of an adapter over it, and of its layer, which reads what the model is before each.
class LayerBench {
 public:
  // `longest`: not 0: tokens of one more sequence.
  explicit LayerBench(std::int64_t top_k = 8, int experts = 2, std::int64_t longest = 0) : positions(std::max<std::int64_t>(600, longest)) {
    Json json = Json::parse(kGlm);
    json["num_nextn_predict_layers"] = 1;
    json["index_topk"] = top_k;
    json["num_experts_per_tok"] = experts;
    if (longest > 0) json["max_position_embeddings"] = longest;
    model = make_model(json);
    masters = initial_weights(model->manifest(), 1, 0.08);
    layer = initial_weights(model->mtp()->manifest(), 2, 0.08);
    data = sequences(96, 5);
    data.erase(data.begin() + 1);  // the long one
    if (longest > 0) {
      std::vector<std::int32_t> tokens(static_cast<std::size_t>(longest));
      for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<std::int32_t>((i * i + 7 * i) % 89);
      data.insert(data.begin() + 1, TrainSequence::next_token(tokens));
    }
  }
  // `of_owner`: some of the ranks, of which others have the rest; null: all, as threads.
  LayerOutcome train(const LayerCase& c, std::int64_t depths = 3, std::unique_ptr<Ranks> of_owner = nullptr) const {
    Runtime runtime({.kind = c.backend, .threads = 1}, model, profile_by_name(c.profile), positions);
    const TrainerOptions options{.micro_batch = c.micro_batch, .optimizer = c.optimizer, .ranks = c.ranks};
    const auto ranks = std::make_shared<RankRuntimes>(runtime, c.ranks, std::move(of_owner));
    MtpTrainer trainer(runtime, layer, {.depths = depths, .train_indexer = true, .loss = c.loss}, options, ranks);
    LayerOutcome out;
    const auto step = [&](const std::vector<TrunkShare>& trunk) {
      out.results.push_back(trainer.forward_backward(trunk, data));
      if (out.gradient.empty()) out.gradient = trainer.gradient_images();
      out.norms.push_back(trainer.optim_step({.learning_rate = 3e-3, .max_norm = 0.5, .router_bias_rate = 1e-2}).gradient_norm);
    };
    if (c.adapted) {
      const auto base = std::make_shared<FrozenBase>(runtime, make_weight_set(runtime.backend, model->manifest(), masters, runtime.profile, 1), options, ranks);
      const auto layout = std::make_shared<const AdapterLayout>(model->manifest(), kOverAll);
      AdapterTrainer adapter(base, layout, stirred(*layout, 1), c.optimizer);
      for (int i = 0; i < 3; ++i) {
        std::vector<TrunkShare> trunk;
        for (int local = 0; local < ranks->ranks().local(); ++local) trunk.push_back({base->rank(local).weights().get(), adapter.rank_weights(local).get()});
        adapter.forward_backward(data, {});
        step(trunk);
        adapter.optim_step({.learning_rate = 1e-2});
      }
      out.trunk = adapter.state().masters();
    } else {
      Trainer whole(runtime, masters, options, ranks);
      for (int i = 0; i < 3; ++i) {
        std::vector<TrunkShare> trunk;
        for (const auto& part : whole.ranks().parts()) trunk.push_back({part->weights().get()});
        whole.forward_backward(data, {});
        step(trunk);
        whole.optim_step({.learning_rate = 1e-3, .router_bias_rate = 1e-3});
      }
      out.trunk = whole.state().masters();
    }
    out.state = trainer.state();
    if (const std::shared_ptr<const WeightSet> published = trainer.weights())
      out.published = weight_images(runtime.backend, model->mtp()->manifest(), *published, runtime.profile);
    return out;
  }
  void expect_same(const LayerOutcome& got, const LayerOutcome& want, const std::string& what) const {
    SCOPED_TRACE(what);
    const Manifest& manifest = model->mtp()->manifest();
    for (std::size_t i = 0; i < want.results.size(); ++i) {
      EXPECT_EQ(got.results[i].loss, want.results[i].loss);
      EXPECT_EQ(got.results[i].of_depth, want.results[i].of_depth);
      EXPECT_EQ(got.results[i].variation, want.results[i].variation);
      EXPECT_EQ(got.results[i].overlap, want.results[i].overlap);
      EXPECT_EQ(got.results[i].targets, want.results[i].targets);
      EXPECT_EQ(got.results[i].index_loss, want.results[i].index_loss);
      EXPECT_EQ(got.norms[i], want.norms[i]);
    }
    EXPECT_EQ(difference(manifest, got.gradient, want.gradient), "") << "the first gradient";
    expect_same_state(manifest, got.state, want.state);
    EXPECT_EQ(difference(manifest, got.published, want.published), "") << "weights";
    EXPECT_TRUE(same_bits(got.trunk, want.trunk)) << "the model";
  }
  std::int64_t positions;
  std::shared_ptr<const Model> model;
  WeightImages masters, layer;
  std::vector<TrainSequence> data;
};

}  // namespace lockstep
