// A model is trained jointly with its layer of multi-token prediction: what the layer's losses say of the model's weights is the gradient of these losses,
// whatever the batches, and is added exactly to the model's own; the layer's own gradient is the one that it has alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "model/adapter.h"
#include "train/draft_overlap.h"
#include "train/mtp_trainer.h"
#include "train/train_test_tools.h"
#include "train/trainer.h"

namespace lockstep {
namespace {

struct JointBench {
  std::shared_ptr<const Model> model;
  WeightImages masters, layer;
  explicit JointBench(std::int64_t top_k = 8, int experts = 2, const ModelOptions& options = {}) : model(make_model(config(top_k, experts), options)) {
    masters = initial_weights(model->manifest(), 1, 0.08);
    layer = initial_weights(model->mtp()->manifest(), 2, 0.08);
  }
  static Json config(std::int64_t top_k, int experts) {
    Json json = Json::parse(kGlm);
    json["num_nextn_predict_layers"] = 1;
    json["index_topk"] = top_k;
    json["num_experts_per_tok"] = experts;
    return json;
  }
  static std::vector<TrainSequence> data() {
    std::vector<TrainSequence> all = sequences(96, 4);
    all.erase(all.begin() + 1);  // the long one
    return all;
  }
};

struct JointGradient {
  WeightImages of_model, of_layer;
  MtpResult result;
};

// `masters`: of the model, null: the bench's. Without `joint` the model is read alone.
JointGradient joint_gradient(const JointBench& bench, const std::vector<TrainSequence>& data, const MtpTraining& training, const TrainerOptions& options = {},
                             int threads = 2, const WeightImages* masters = nullptr, bool joint = true) {
  Runtime runtime({.threads = threads}, bench.model, profile_by_name("cpu-f32"), 600);
  const Manifest& manifest = bench.model->manifest();
  const auto weights = make_weight_set(runtime.backend, manifest, masters ? *masters : bench.masters, runtime.profile, 0);
  MtpTrainer trainer(runtime, bench.layer, training, options);
  GradientSet set(runtime.backend, manifest, true);
  JointGradient all;
  all.result = trainer.forward_backward(std::vector<TrunkShare>{{weights.get(), nullptr, joint ? &set : nullptr}}, data);
  set.finish();
  for (std::size_t i = 0; i < manifest.parameters().size(); ++i)
    all.of_model.push_back(runtime.backend.stream().read(set.gradient(static_cast<ParameterId>(i))).get());
  all.of_layer = trainer.gradient_images();
  return all;
}

// Along random directions, in every third parameter of the model by itself, table and head among them. All keys and experts are selected, so that nothing
// jumps.
TEST(MtpJoint, TheModelsGradientIsThatOfTheLosses) {
  const JointBench bench(64, 6);
  const std::vector<TrainSequence> data = JointBench::data();
  const MtpTraining training{.depths = 3, .loss = MtpLoss::both};
  const JointGradient at = joint_gradient(bench, data, training);
  const std::vector<Parameter>& parameters = bench.model->manifest().parameters();
  int compared = 0;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (!parameters[i].trained || parameters[i].indexer) {
      for (const float g : at.of_model[i]) ASSERT_EQ(g, 0.0f) << parameters[i].name;
      continue;
    }
    if (i % 3 != 0 && static_cast<ParameterId>(i) != bench.model->facts().head && i + 2 < parameters.size()) continue;
    NamedUniform uniform(9, parameters[i].name);
    double along = 0, size = 0;
    std::vector<float> direction(at.of_model[i].size());
    for (std::size_t j = 0; j < direction.size(); ++j) {
      direction[j] = bench.masters[i][j] == 0 ? 0 : uniform(j);  // padding stays as it is
      along += static_cast<double>(direction[j]) * static_cast<double>(at.of_model[i][j]);
      size += static_cast<double>(direction[j]) * static_cast<double>(direction[j]);
    }
    const auto loss_at = [&](double step) {
      WeightImages moved = bench.masters;
      for (std::size_t j = 0; j < direction.size(); ++j) moved[i][j] += static_cast<float>(step * static_cast<double>(direction[j]));
      return joint_gradient(bench, data, training, {}, 2, &moved, false).result.loss;
    };
    const double step = 1e-2 / std::sqrt(size), slope = (loss_at(step) - loss_at(-step)) / (2 * step);
    EXPECT_NEAR(slope, along, 2e-2 * std::max(std::fabs(slope), 2e-3 * std::sqrt(size))) << parameters[i].name;
    ++compared;
  }
  EXPECT_GE(compared, 10);
}

TEST(MtpJoint, AnOverlapByTheModelsLogits) {
  std::vector<float> model{0.5f, -1.0f, 2.0f, 0.0f};
  const std::vector<float> draft{2.0f, 0.25f, 0.5f, -3.0f};
  const Softmax q = softmax_of(draft.data(), 4);
  const auto at_present = [&] { return overlap(model.data(), softmax_of(model.data(), 4), draft.data(), q, 4); };
  std::vector<float> gradient(4);
  model_overlap_gradient(model.data(), softmax_of(model.data(), 4), draft.data(), q, at_present(), 0.75, 4, gradient.data());
  for (std::size_t v = 0; v < 4; ++v) {
    const float z = model[v], above = z + 1e-2f, below = z - 1e-2f;
    model[v] = above;
    const double up = at_present().alpha;
    model[v] = below;
    const double down = at_present().alpha;
    model[v] = z;
    EXPECT_NEAR(static_cast<double>(gradient[v]), 0.75 * (up - down) / (static_cast<double>(above) - static_cast<double>(below)), 1e-4) << v;
    EXPECT_GT(std::fabs(gradient[v]), 1e-3f) << v;
  }
}

class MtpJointLosses : public testing::TestWithParam<MtpLoss> {};

TEST_P(MtpJointLosses, BitsDependOnTheDataAlone) {
  for (const ModelOptions& model : {ModelOptions{}, ModelOptions{.mtp_shares_keys = false, .mtp_normed_state = false}}) {
    const JointBench bench(8, 2, model);
    const std::vector<TrainSequence> data = JointBench::data();
    const MtpTraining training{.depths = 4, .train_indexer = true, .loss = GetParam()};
    const JointGradient want = joint_gradient(bench, data, training), alone = joint_gradient(bench, data, training, {}, 2, nullptr, false);
    const auto expect_same = [&](const JointGradient& got, const char* what) {
      EXPECT_EQ(difference(bench.model->manifest(), got.of_model, want.of_model), "") << what;
      EXPECT_EQ(difference(bench.model->mtp()->manifest(), got.of_layer, want.of_layer), "") << what;
      EXPECT_EQ(got.result.loss, want.result.loss) << what;
    };
    expect_same(joint_gradient(bench, data, training, {.micro_batch = 1}), "sequences one by one");
    expect_same(joint_gradient(bench, data, training, {.micro_batch = 2, .page_size = 4}, 1), "two by two, small pages, one thread");
    expect_same(joint_gradient(bench, data, training, {.checkpoint_activations = true}), "activations computed again");
    expect_same(joint_gradient(bench, std::vector<TrainSequence>(data.rbegin(), data.rend()), training), "in another order");
    // The layer does not feel that the model moves too.
    EXPECT_EQ(difference(bench.model->mtp()->manifest(), alone.of_layer, want.of_layer), "");
    EXPECT_EQ(alone.result.loss, want.result.loss);
    for (const std::vector<float>& image : alone.of_model) EXPECT_TRUE(std::all_of(image.begin(), image.end(), [](float g) { return g == 0; }));
    std::vector<TrainSequence> other = data;
    other.back().tokens[2] = (other.back().tokens[2] + 1) % 96;
    EXPECT_NE(difference(bench.model->manifest(), joint_gradient(bench, other, training).of_model, want.of_model), "") << "the control";
  }
}

INSTANTIATE_TEST_SUITE_P(All, MtpJointLosses, testing::Values(MtpLoss::ce, MtpLoss::tv, MtpLoss::both), [](const auto& info) {
  return std::string(info.param == MtpLoss::ce ? "ce" : info.param == MtpLoss::tv ? "tv" : "both");
});

// The step's gradient is the exact sum of the model's own and the layer's part: whichever comes first, in whatever pieces.
TEST(MtpJoint, IsOneCallMoreOfTheStep) {
  const JointBench bench;
  const std::vector<TrainSequence> data = JointBench::data();
  const Manifest& manifest = bench.model->manifest();
  enum class When { never, before, behind };
  const auto stepped = [&](When when, std::int64_t micro_batch) {
    Runtime runtime({.threads = 2}, bench.model, profile_by_name("cpu-bf16w"), 600);
    Trainer model(runtime, bench.masters, {.micro_batch = micro_batch, .accumulate = true});
    MtpTrainer layer(runtime, bench.layer, {.depths = 2, .loss = MtpLoss::both}, {.micro_batch = micro_batch});
    for (int step = 0; step < 2; ++step) {
      const auto jointly = [&] {
        GradientSet* const set = model.ranks().first().more_gradients();
        ASSERT_NE(set, nullptr);
        layer.forward_backward(std::vector<TrunkShare>{{model.weights().get(), nullptr, set}}, data);
        layer.optim_step({.learning_rate = 1e-3});
      };
      if (when == When::before) jointly();
      model.forward_backward(data, {});
      if (when == When::behind) jointly();
      model.optim_step({.learning_rate = 1e-3, .router_bias_rate = 1e-3});
    }
    return model.state().masters();
  };
  const WeightImages want = stepped(When::behind, 0);
  EXPECT_EQ(difference(manifest, stepped(When::before, 0), want), "");
  EXPECT_EQ(difference(manifest, stepped(When::behind, 1), want), "");
  EXPECT_NE(difference(manifest, stepped(When::never, 0), want), "") << "the control";
  Runtime runtime({.threads = 1}, bench.model, profile_by_name("cpu-f32"), 600);
  EXPECT_EQ(Trainer(runtime, bench.masters, {}).ranks().first().more_gradients(), nullptr);
}

TEST(MtpJoint, WhatCannotBeTrainedJointlyIsRefused) {
  const auto refused = [](const char* part, const auto& work) {
    try {
      work();
      ADD_FAILURE() << "accepted, not refused with: " << part;
    } catch (const Error& e) {
      EXPECT_NE(e.message().find(part), std::string::npos) << e.message();
    }
  };
  const JointBench bench;
  Runtime runtime({.threads = 1}, bench.model, profile_by_name("cpu-f32"), 600);
  const Manifest& manifest = bench.model->manifest();
  const auto weights = make_weight_set(runtime.backend, manifest, bench.masters, runtime.profile, 0);
  const std::vector<TrainSequence> data = JointBench::data();
  GradientSet set(runtime.backend, manifest, true), plain(runtime.backend, manifest, false);
  MtpTrainer ranked(runtime, bench.layer, {.depths = 1}, {.ranks = {.ep = 2, .rows = ReplicaRows::dealt}}), trainer(runtime, bench.layer, {.depths = 1}, {});
  const TrunkShare share{weights.get(), nullptr, &set};
  refused("allowed is rows=shared", [&] { ranked.forward_backward(std::vector<TrunkShare>{share, share}, data); });
  refused("have no accumulators", [&] { trainer.forward_backward(std::vector<TrunkShare>{{weights.get(), nullptr, &plain}}, data); });
  AdapterWeights adapter;
  refused("an adapter stands over a model", [&] { trainer.forward_backward(std::vector<TrunkShare>{{weights.get(), &adapter, &set}}, data); });
  Json json = Json::parse(kOverAllKeys);
  json["num_nextn_predict_layers"] = 1;
  json["tie_word_embeddings"] = true;
  const std::shared_ptr<const Model> tied = make_model(json);
  Runtime of_tied({.threads = 1}, tied, profile_by_name("cpu-f32"), 600);
  const auto tied_weights = make_weight_set(of_tied.backend, tied->manifest(), initial_weights(tied->manifest(), 1, 0.08), of_tied.profile, 0);
  MtpTrainer over_tied(of_tied, initial_weights(tied->mtp()->manifest(), 2, 0.08), {.depths = 1}, {});
  GradientSet of_tied_set(of_tied.backend, tied->manifest(), true);
  refused("'tie_word_embeddings'", [&] { over_tied.forward_backward(std::vector<TrunkShare>{{tied_weights.get(), nullptr, &of_tied_set}}, data); });
}

}  // namespace
}  // namespace lockstep
