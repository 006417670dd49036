// The indexers of a model alone are trained: by the loss whose target is the attention of all layers that use their selection; nothing else moves.
#include <gtest/gtest.h>

#include <cmath>
#include <optional>

#include "base/error.h"
#include "kernels/instruction_set.h"
#include "train/train_test_tools.h"
#include "train/trainer.h"

namespace lockstep {
namespace {

constexpr IndexTraining kIndexLoss{.index_loss = true};

struct IndexBench : TrainBench {
  explicit IndexBench(std::int64_t top_k) : TrainBench(config(top_k)) {}
  // Two of three layers use the first one's indexer.
  static std::string config(std::int64_t top_k) {
    Json json = Json::parse(kGlm);
    json["index_topk"] = top_k;
    return json.dump();
  }
  static std::vector<TrainSequence> data(bool masked) {
    std::vector<TrainSequence> all = sequences(96, 4);
    all.erase(all.begin() + 1);  // the long one
    for (TrainSequence& s : all)
      if (masked) std::fill(s.weights.begin(), s.weights.end(), 0.0f);
    return all;
  }
  const std::vector<Parameter>& parameters() const { return model->manifest().parameters(); }
};

// All keys are selected, so that a target does not depend on the indexer: along random directions the loss changes as the gradient says. What is told is
// the mean over the indexers, what is trained their sum.
TEST(IndexAlone, TheGradientIsThatOfTheLossOverAllLayersOfASelection) {
  const IndexBench bench(64);
  const std::vector<TrainSequence> data = IndexBench::data(true);
  const auto loss_and_gradient = [&](const WeightImages& masters) {
    Runtime runtime({.threads = 2}, bench.model, profile_by_name("cpu-f32"), 600);
    Trainer trainer(runtime, masters, {.train_indexer = true, .indexer_alone = true});
    constexpr double kIndexers = 2;
    const double loss = kIndexers * trainer.forward_backward(data, {}, kIndexLoss).index_loss;
    return std::pair(loss, trainer.gradient_images());
  };
  const auto [at, gradient] = loss_and_gradient(bench.masters);
  EXPECT_GT(at, 0);
  int compared = 0;
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    if (!bench.parameters()[i].indexer) {
      for (const float g : gradient[i]) ASSERT_EQ(g, 0.0f) << bench.parameters()[i].name;
      continue;
    }
    NamedUniform uniform(9, bench.parameters()[i].name);
    double along = 0, size = 0;
    WeightImages up = bench.masters, down = bench.masters;
    std::vector<float> direction(gradient[i].size());
    for (std::size_t j = 0; j < direction.size(); ++j) {
      direction[j] = bench.masters[i][j] == 0 ? 0 : uniform(j);
      along += static_cast<double>(direction[j]) * static_cast<double>(gradient[i][j]);
      size += static_cast<double>(direction[j]) * static_cast<double>(direction[j]);
    }
    if (size == 0) continue;  // a bias of zeros
    const double step = 2e-2 / std::sqrt(size);
    for (std::size_t j = 0; j < direction.size(); ++j) {
      up[i][j] += static_cast<float>(step * static_cast<double>(direction[j]));
      down[i][j] -= static_cast<float>(step * static_cast<double>(direction[j]));
    }
    const double slope = (loss_and_gradient(up).first - loss_and_gradient(down).first) / (2 * step);
    EXPECT_NEAR(slope, along, 6e-2 * std::max(std::fabs(slope), 1e-4 * std::sqrt(size))) << bench.parameters()[i].name;
    ++compared;
  }
  EXPECT_EQ(compared, 8);  // four of each of two indexers
}

// The steps are those of a trainer that trains everything and whose norm is not clipped; what is frozen keeps its bits; no bit depends on batches, threads or
// instruction sets.
TEST(IndexAlone, NothingElseMoves) {
  const IndexBench bench(8);
  const auto stepped = [&](bool alone, bool masked, int threads = 2, std::int64_t micro_batch = 0, bool checkpoint = false,
                           std::optional<InstructionSet> isa = std::nullopt) {
    Runtime runtime({.isa = isa, .threads = threads}, bench.model, profile_by_name("cpu-bf16w"), 600);
    Trainer trainer(runtime, bench.masters, {.micro_batch = micro_batch, .checkpoint_activations = checkpoint, .train_indexer = true, .indexer_alone = alone});
    trainer.forward_backward(IndexBench::data(masked), {}, kIndexLoss);
    trainer.optim_step({.learning_rate = 1e-2, .max_norm = 0});
    return trainer.state().masters();
  };
  const WeightImages alone = stepped(true, true), all = stepped(false, false);
  std::int64_t moved = 0;
  for (std::size_t i = 0; i < alone.size(); ++i) {
    const Parameter& p = bench.parameters()[i];
    EXPECT_EQ(alone[i], p.indexer ? all[i] : bench.masters[i]) << p.name;
    if (p.trained) {
      EXPECT_NE(all[i], bench.masters[i]) << p.name;
    }
    moved += alone[i] != bench.masters[i];
  }
  EXPECT_EQ(moved, 10);
  EXPECT_EQ(difference(bench.model->manifest(), stepped(true, false, 1, 1), alone), "");
  EXPECT_EQ(difference(bench.model->manifest(), stepped(true, false, 2, 0, true), alone), "") << "checkpointed";
  for (const InstructionSet isa : {InstructionSet::avx2, InstructionSet::scalar})
    if (machine_has(isa)) {
      EXPECT_EQ(difference(bench.model->manifest(), stepped(true, true, 2, 0, false, isa), alone), "") << instruction_set_name(isa);
    }
}

}  // namespace
}  // namespace lockstep
