// What each family's kernels count is what its config says, and its memory what a plan says.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "engine/engine.h"
#include "parity/engine_ways.h"
#include "planning/memory_plan.h"
#include "system/golden_tools.h"
#include "train/trainer.h"

namespace lockstep {
namespace {

constexpr std::int64_t kCountedContext = 96;

class FamilyCounts : public testing::TestWithParam<std::string> {
 protected:
  const std::shared_ptr<const Model> model = make_model(tiny_config(GetParam()));
  const WeightImages masters = golden_weights(model->manifest(), 3);

  Runtime runtime() const { return Runtime({.threads = 1}, model, profile_by_name("cpu-bf16w"), kCountedContext); }
};

// From the config alone: layers with experts, and the keys that a row at `position` reads in all layers.
std::int64_t layers_with_experts(const Json& config) {
  const auto layers = config.at("num_hidden_layers").get<std::int64_t>();
  if (!config.contains("num_experts_per_tok")) return 0;
  if (config.contains("mlp_layer_types")) return std::count(config["mlp_layer_types"].begin(), config["mlp_layer_types"].end(), "sparse");
  if (config.contains("mlp_only_layers")) return layers - static_cast<std::int64_t>(config["mlp_only_layers"].size());
  return layers - config.value("first_k_dense_replace", std::int64_t{0});
}
std::int64_t keys_read(const Json& config, std::int64_t position) {
  std::int64_t keys = 0;
  for (std::size_t layer = 0; layer < config.at("num_hidden_layers").get<std::size_t>(); ++layer) {
    std::int64_t most = position + 1;
    if (config.contains("index_topk")) most = std::min(most, config["index_topk"].get<std::int64_t>());
    const bool whole = config.contains("layer_types") && config["layer_types"][layer] == "full_attention";
    if (config.contains("sliding_window") && !whole) most = std::min(most, config["sliding_window"].get<std::int64_t>());
    keys += most;
  }
  return keys;
}

TEST_P(FamilyCounts, KernelsCountWhatTheConfigSays) {
  const Json config = tiny_config(GetParam());
  Runtime own = runtime();
  Trainer trainer(own, masters, {});
  RandomSequence draws(4, RandomStream::fuzz);
  constexpr std::int64_t kTokens = 40;
  const std::vector<std::int32_t> tokens = random_tokens(draws, kTokens, model->facts().vocabulary);
  const auto expect = [&](const ForwardCounts& counts, std::int64_t rows, const char* what) {
    std::int64_t keys = 0;
    for (std::int64_t position = 0; position < rows; ++position) keys += keys_read(config, position);
    EXPECT_EQ(counts.expert_rows, 3 * rows * layers_with_experts(config) * config.value("num_experts_per_tok", std::int64_t{0})) << what << ": gate, up, down";
    EXPECT_EQ(counts.pairs_read, keys * config.at("num_attention_heads").get<std::int64_t>()) << what;
    EXPECT_EQ(counts.fault(), "") << what;
  };
  trainer.score({TrainSequence::next_token(tokens)});
  expect(trainer.ranks().work(), kTokens - 1, "training");
  Engine engine(own, trainer.weights(), {.page_size = 4});
  engine_score(engine, tokens, {.kind = ScoreKind::decode, .seed = 9});
  expect(engine.counters().work, kTokens, "serving");
}

// From config.json alone, by category, to the byte.
TEST_P(FamilyCounts, APlanIsWhatTrainingAndServingTake) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / fmt::format("lockstep-family-plan-{}", ::getpid());
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "config.json") << tiny_config(GetParam());
  const RuntimeSettings settings{.model = folder.string(), .profile = "cpu-bf16w", .threads = 1, .context = kCountedContext};
  const auto expect_equal = [](const MemoryPlan& plan, const MemoryPlan& real) {
    for (std::size_t c = 0; c < plan.peak.size(); ++c) EXPECT_EQ(plan.peak[c], real.peak[c]) << kMemoryCategoryNames[c];
    EXPECT_EQ(plan.total, real.total);
  };
  Runtime training = runtime();
  Trainer trainer(training, masters, {});
  for (int step = 0; step < 2; ++step) {
    trainer.forward_backward(std::vector<TrainSequence>(3, TrainSequence::next_token(std::vector<std::int32_t>(41, 7))), {});
    trainer.optim_step({});
  }
  const MemoryPlan learns = plan_training(settings, {.sequences = 3, .length = 40})[0];
  expect_equal(learns, memory_of(training.backend.device().memory()));

  const ServingPlan what{.sequences = 5, .length = 60, .engine = {.cache_bytes = 1 << 20, .max_sequences = 5}};
  Runtime serving = runtime();
  Engine engine(serving, make_weight_set(serving.backend, model->manifest(), masters, serving.profile, 0), what.engine);
  for (int i = 0; i < 5; ++i) engine.submit({.prompt = std::vector<std::int32_t>(59, 7), .sampling = {.temperature = 1, .max_tokens = 1}});
  engine.run_until_idle();
  const MemoryPlan serves = plan_serving(settings, what)[0];
  expect_equal(serves, memory_of(serving.backend.device().memory()));
  EXPECT_LT(serves.total, learns.total) << "a plan that says the same of everything says nothing";
  std::filesystem::remove_all(folder);
}

INSTANTIATE_TEST_SUITE_P(Families, FamilyCounts, testing::ValuesIn(all_families()), [](const auto& info) { return info.param; });

}  // namespace
}  // namespace lockstep
