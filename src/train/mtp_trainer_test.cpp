// A layer of multi-token prediction is trained: its gradient is that of its loss, whatever the batches; it learns; the model's numbers are read alone.
#include "train/mtp_trainer.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "train/train_test_tools.h"

namespace lockstep {
namespace {

struct MtpTrainBench {
  std::shared_ptr<const Model> model;
  WeightImages masters, layer;
  explicit MtpTrainBench(std::int64_t top_k = 8, int experts = 2, bool shares_keys = true, bool normed_state = true)
      : model(make_model(config(top_k, experts), {.mtp_shares_keys = shares_keys, .mtp_normed_state = normed_state})) {
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
};

std::vector<TrainSequence> mtp_sequences() {
  std::vector<TrainSequence> data = sequences(96, 4);
  data.erase(data.begin() + 1);  // the long one
  return data;
}

struct MtpTrained {
  WeightImages gradient;
  MtpResult result;
};

MtpTrained mtp_gradient(const MtpTrainBench& bench, const std::vector<TrainSequence>& data, const MtpTraining& training, const TrainerOptions& options = {},
                        int threads = 2, const WeightImages* layer = nullptr) {
  Runtime runtime({.threads = threads}, bench.model, profile_by_name("cpu-f32"), 600);
  const auto weights = make_weight_set(runtime.backend, bench.model->manifest(), bench.masters, runtime.profile, 0);
  MtpTrainer trainer(runtime, layer ? *layer : bench.layer, training, options);
  MtpTrained trained;
  trained.result = trainer.forward_backward(*weights, data);
  trained.gradient = trainer.gradient_images();
  return trained;
}

// Along random directions, in each parameter by itself: the loss changes as the gradient says. All keys and experts are selected, so that nothing jumps.
class MtpTrainerLosses : public testing::TestWithParam<MtpLoss> {};

TEST_P(MtpTrainerLosses, TheGradientIsThatOfTheLoss) {
  const MtpTrainBench bench(64, 6);
  const std::vector<TrainSequence> data = mtp_sequences();
  const MtpTraining training{.depths = 3, .loss = GetParam()};
  const MtpTrained at = mtp_gradient(bench, data, training);
  const double entropies = (at.result.of_depth[0] + at.result.of_depth[1] + at.result.of_depth[2]) / 3;
  EXPECT_NEAR(at.result.loss, entropies + at.result.variation, 1e-9);
  EXPECT_EQ(at.result.variation != 0, GetParam() != MtpLoss::ce);
  EXPECT_EQ(entropies != 0, GetParam() != MtpLoss::tv);
  if (GetParam() != MtpLoss::tv) {
    EXPECT_EQ(at.result.targets[0] - at.result.targets[1], static_cast<std::int64_t>(data.size()));  // a row less of each text
  }
  for (const double alpha : at.result.overlap) EXPECT_EQ(alpha > 0 && alpha < 1, GetParam() != MtpLoss::ce) << alpha;
  const std::vector<Parameter>& parameters = bench.model->mtp()->manifest().parameters();
  int compared = 0;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (!parameters[i].trained || parameters[i].indexer) {
      for (const float g : at.gradient[i]) ASSERT_EQ(g, 0.0f) << parameters[i].name;
      continue;
    }
    NamedUniform uniform(9, parameters[i].name);
    double along = 0, size = 0;
    std::vector<float> direction(at.gradient[i].size());
    for (std::size_t j = 0; j < direction.size(); ++j) {
      direction[j] = bench.layer[i][j] == 0 ? 0 : uniform(j);  // padding stays as it is
      along += static_cast<double>(direction[j]) * static_cast<double>(at.gradient[i][j]);
      size += static_cast<double>(direction[j]) * static_cast<double>(direction[j]);
    }
    const auto loss_at = [&](double step) {
      WeightImages moved = bench.layer;
      for (std::size_t j = 0; j < direction.size(); ++j) moved[i][j] += static_cast<float>(step * static_cast<double>(direction[j]));
      return mtp_gradient(bench, data, training, {}, 2, &moved).result.loss;
    };
    const double step = 2e-2 / std::sqrt(size), slope = (loss_at(step) - loss_at(-step)) / (2 * step);
    EXPECT_NEAR(slope, along, 2e-2 * std::max(std::fabs(slope), 2e-3 * std::sqrt(size))) << parameters[i].name;
    ++compared;
  }
  EXPECT_GE(compared, 15);
}

TEST_P(MtpTrainerLosses, BitsDependOnTheDataAlone) {
  const MtpTrainBench bench;
  const std::vector<TrainSequence> data = mtp_sequences();
  const MtpTraining training{.depths = 4, .train_indexer = true, .loss = GetParam()};
  const MtpTrained want = mtp_gradient(bench, data, training);
  EXPECT_GT(want.result.index_loss, 0);
  std::vector<TrainSequence> turned(data.rbegin(), data.rend());
  const Manifest& manifest = bench.model->mtp()->manifest();
  for (const std::int64_t micro_batch : {1, 2})
    EXPECT_EQ(difference(manifest, mtp_gradient(bench, data, training, {.micro_batch = micro_batch}).gradient, want.gradient), "") << micro_batch;
  EXPECT_EQ(difference(manifest, mtp_gradient(bench, turned, training).gradient, want.gradient), "");
  EXPECT_EQ(difference(manifest, mtp_gradient(bench, data, training, {.page_size = 4}, 1).gradient, want.gradient), "");
  std::vector<TrainSequence> other = data;
  other.back().tokens[2] = (other.back().tokens[2] + 1) % 96;
  EXPECT_NE(difference(manifest, mtp_gradient(bench, other, training).gradient, want.gradient), "") << "the control";
}

INSTANTIATE_TEST_SUITE_P(All, MtpTrainerLosses, testing::Values(MtpLoss::ce, MtpLoss::tv, MtpLoss::both), [](const auto& info) {
  return std::string(info.param == MtpLoss::ce ? "ce" : info.param == MtpLoss::tv ? "tv" : "both");
});

// What a chain is worth, by its definition; and a text that ends before the last depth begins none.
TEST(MtpTrainer, ChainsOfDrafts) {
  const std::vector<double> alphas{0.9, 0.5, 0.8};
  EXPECT_NEAR(chain_loss(alphas), 1 - (0.9 + 0.45 + 0.36) / 3, 1e-15);
  const std::vector<double> slopes = chain_slopes(alphas);
  EXPECT_NEAR(slopes[0], -(1 + 0.5 + 0.4) / 3, 1e-15);
  EXPECT_NEAR(slopes[1], -(0.9 + 0.72) / 3, 1e-15);
  EXPECT_NEAR(slopes[2], -0.45 / 3, 1e-15);
  const std::vector<float> model{0.5f, -1.0f, 2.0f, 0.0f}, draft{2.0f, 0.25f, 0.5f, -3.0f};
  const Softmax p = softmax_of(model.data(), 4), q = softmax_of(draft.data(), 4);
  double alpha = 0;
  for (std::size_t v = 0; v < 4; ++v) alpha += std::min(std::exp(model[v] - p.largest) / p.sum, std::exp(draft[v] - q.largest) / q.sum);
  EXPECT_NEAR(overlap(model.data(), p, draft.data(), q, 4).alpha, alpha, 1e-14);
  EXPECT_NEAR(overlap(model.data(), p, model.data(), p, 4).alpha, 1, 1e-14);
  TrainSequence text = TrainSequence::next_token({1, 2, 3, 4, 5, 6});  // five rows
  text.weights[2] = 0;
  const std::vector<DraftChain> chains = draft_chains({text, text}, {0, 1}, 2);
  std::vector<std::int32_t> rows;
  for (const DraftChain& chain : chains) rows.push_back(chain.row);
  EXPECT_EQ(rows, (std::vector<std::int32_t>{1, 3, 6, 8}));
}

// Depths that share nothing (their gradients are autograd's: MtpGolden): other ones, of which the same holds; each depth's selection has a loss of its own.
TEST(MtpTrainer, DepthsThatShareNothing) {
  const MtpTrainBench shared, own(8, 2, false);
  const std::vector<TrainSequence> data = mtp_sequences();
  const MtpTraining training{.depths = 3, .train_indexer = true, .loss = MtpLoss::both};
  const Manifest& manifest = own.model->mtp()->manifest();
  const MtpTrained want = mtp_gradient(own, data, training);
  EXPECT_EQ(difference(manifest, mtp_gradient(own, data, training, {.micro_batch = 1, .page_size = 4}, 1).gradient, want.gradient), "");
  const MtpTrained other = mtp_gradient(shared, data, training);
  EXPECT_NE(difference(manifest, other.gradient, want.gradient), "");
  EXPECT_EQ(other.result.of_depth[0], want.result.of_depth[0]);
  EXPECT_NE(other.result.of_depth[1], want.result.of_depth[1]);
  EXPECT_GT(want.result.index_loss, other.result.index_loss);  // a sum over depths
}

// Depths that are given the unnormed output of the one before (their gradients are autograd's: MtpGolden): the first depth says the same, later ones do not.
TEST(MtpTrainer, DepthsOfUnnormedStates) {
  const MtpTrainBench normed, unnormed(8, 2, true, false);
  const std::vector<TrainSequence> data = mtp_sequences();
  const MtpTraining training{.depths = 3, .train_indexer = true, .loss = MtpLoss::both};
  const Manifest& manifest = unnormed.model->mtp()->manifest();
  const MtpTrained want = mtp_gradient(unnormed, data, training), other = mtp_gradient(normed, data, training);
  EXPECT_EQ(difference(manifest, mtp_gradient(unnormed, data, training, {.micro_batch = 1, .page_size = 4}, 1).gradient, want.gradient), "");
  EXPECT_NE(difference(manifest, other.gradient, want.gradient), "");
  EXPECT_EQ(other.result.of_depth[0], want.result.of_depth[0]);
  for (const std::size_t depth : {1u, 2u}) EXPECT_NE(other.result.of_depth[depth], want.result.of_depth[depth]);
}

TEST(MtpTrainer, LearnsWhatFollows) {
  const MtpTrainBench bench;
  Runtime runtime({.threads = 2}, bench.model, profile_by_name("cpu-bf16w"), 600);
  const auto weights = make_weight_set(runtime.backend, bench.model->manifest(), bench.masters, runtime.profile, 0);
  MtpTrainer trainer(runtime, bench.layer, {.depths = 2}, {});
  const std::vector<TrainSequence> data = mtp_sequences();
  std::vector<double> losses;
  for (int step = 0; step < 30; ++step) {
    losses.push_back(trainer.forward_backward(*weights, data).loss);
    trainer.optim_step({.learning_rate = 3e-3, .router_bias_rate = 1e-3});
  }
  EXPECT_LT(losses.back(), 0.5 * losses.front());
  EXPECT_EQ(trainer.weights()->version, 30u);
  // A restart goes on with the same bits.
  MtpTrainer again(runtime, bench.layer, {.depths = 2}, {});
  again.restore(trainer.state());
  EXPECT_EQ(again.forward_backward(*weights, data).loss, trainer.forward_backward(*weights, data).loss);
}

TEST(MtpTrainer, WhatItCannotTrainIsRefused) {
  const MtpTrainBench bench;
  const auto refused = [](const char* part, const auto& work) {
    try {
      work();
      ADD_FAILURE() << "accepted, not refused with: " << part;
    } catch (const Error& e) {
      EXPECT_NE(e.message().find(part), std::string::npos) << e.message();
    }
  };
  Runtime runtime({.threads = 1}, bench.model, profile_by_name("cpu-f32"), 40);
  refused("depths is 9, allowed is 1 to 8", [&] { MtpTrainer(runtime, bench.layer, {.depths = 9}, {}); });
  const auto weights = make_weight_set(runtime.backend, bench.model->manifest(), bench.masters, runtime.profile, 0);
  MtpTrainer trainer(runtime, bench.layer, {.depths = 8}, {});
  std::vector<std::int32_t> long_text(36, 3);
  refused("allowed are at most 40 in all", [&] { trainer.forward_backward(*weights, {TrainSequence::next_token(long_text)}); });
  const TrainBench without(kGlm);
  Runtime plain({.threads = 1}, without.model, profile_by_name("cpu-f32"), 40);
  refused("'num_nextn_predict_layers' 1", [&] { MtpTrainer(plain, bench.layer, {}, {}); });
}

// Neither loss has the logits of all rows at once: of 2,000 rows and 4,096 tokens less than half.
TEST(MtpTrainer, LogitsAreThereForSomeRowsAtATime) {
  constexpr std::int64_t kVocabulary = 4096, kTexts = 4, kRows = 500;
  Json json = Json::parse(kOverAllKeys);
  json["num_nextn_predict_layers"] = 1;
  json["vocab_size"] = kVocabulary;
  const std::shared_ptr<const Model> model = make_model(json);
  Runtime runtime({.threads = 2}, model, profile_by_name("cpu-f32"), 600);
  const auto weights = make_weight_set(runtime.backend, model->manifest(), initial_weights(model->manifest(), 1, 0.08), runtime.profile, 0);
  MtpTrainer trainer(runtime, initial_weights(model->mtp()->manifest(), 2, 0.08), {.depths = 1, .loss = MtpLoss::both}, {});
  const std::vector<TrainSequence> data(kTexts, TrainSequence::next_token(std::vector<std::int32_t>(kRows + 1, 7)));
  MemoryAccounts& memory = runtime.backend.device().memory();
  memory.reset_peaks();
  EXPECT_GT(trainer.forward_backward(*weights, data).variation, 0);
  const std::int64_t all = kTexts * kRows * kVocabulary * static_cast<std::int64_t>(sizeof(float));
  EXPECT_LT(memory.peak(MemoryCategory::workspace), all / 2);
  EXPECT_GT(memory.peak(MemoryCategory::workspace), all / 20) << "there were none";
}

}  // namespace
}  // namespace lockstep
