// Ways of training that hold in every family, of all weights and of an adapter: the routing that an engine told is given back, Muon, optimizer state
// in a file. What each family's kernels count is what its config says, and its memory what a plan says. (Memorisation, parity, ranks, exports and kept
// forwards walk the registry elsewhere.)
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "engine/engine.h"
#include "parity/engine_ways.h"
#include "planning/memory_plan.h"
#include "system/golden_tools.h"
#include "train/adapter_trainer.h"
#include "train/trainer.h"

namespace lockstep {
namespace {

constexpr std::int64_t kPositions = 96;

struct Way {
  RankLayout ranks = {};
  bool dimuon = false;
  std::string state_folder = "";
  int steps = 2;
};

struct Steps {
  std::vector<std::uint64_t> hashes;  // of gradients and of masters, a step
  std::vector<std::vector<float>> logprobs;
  bool operator==(const Steps&) const = default;
};

class FamilyWays : public testing::TestWithParam<std::string> {
 protected:
  const std::shared_ptr<const Model> model = make_model(tiny_config(GetParam()));
  const WeightImages masters = golden_weights(model->manifest(), 3);

  Runtime runtime() const { return Runtime({.threads = 1}, model, profile_by_name("cpu-bf16w"), kPositions); }
  TrainerOptions options(const Way& way) const {
    return {.micro_batch = 2,
            .optimizer_folder = way.state_folder,
            .release_state = !way.state_folder.empty(),
            .optimizer = way.dimuon ? *optimizer_named("dimuon") : adamw(),
            .ranks = way.ranks};
  }
  template <class T>
  static Steps steps_of(T& trainer, const Way& way, const std::vector<TrainSequence>& data) {
    Steps steps;
    for (int step = 0; step < way.steps; ++step) {
      for (auto& row : trainer.forward_backward(data, {}).logprobs) steps.logprobs.push_back(std::move(row));
      steps.hashes.push_back(trainer.gradient_hash());
      trainer.optim_step({.learning_rate = 1e-3, .weight_decay = 0.1});
      steps.hashes.push_back(trainer.state().master_hash());
    }
    return steps;
  }
  Steps whole(const Way& way, const std::vector<TrainSequence>& data) const {
    Runtime own = runtime();
    Trainer trainer(own, masters, options(way));
    return steps_of(trainer, way, data);
  }
  // Over experts too. Its first B is zero, so that the second step alone has a gradient of A.
  Steps adapter(const Way& way, const std::vector<TrainSequence>& data) const {
    Runtime own = runtime();
    const auto weights = make_weight_set(own.backend, model->manifest(), masters, own.profile, 0);
    const auto layout = std::make_shared<const AdapterLayout>(model->manifest(), AdapterSettings{.rank = 4, .alpha = 7, .unembedding = true});
    AdapterTrainer trainer(std::make_shared<FrozenBase>(own, weights, options(way)), layout, initial_adapter(*layout, 3), options(way).optimizer);
    return steps_of(trainer, way, data);
  }
  std::vector<TrainSequence> texts() const {
    RandomSequence draws(6, RandomStream::fuzz);
    std::vector<TrainSequence> data;
    for (const std::int64_t n : {33, 12, 21}) data.push_back(TrainSequence::next_token(random_tokens(draws, n, model->facts().vocabulary)));
    return data;
  }
};

// What an engine told of its routing, as the trainer takes it: a sequence's input tokens in turn.
struct Sampled {
  std::vector<TrainSequence> plain, routed;
  std::vector<std::vector<float>> logprobs;  // of the sampled tokens, each sequence's last
};
Sampled sample_with_experts(Engine& engine, std::int64_t vocabulary) {
  RandomSequence draws(8, RandomStream::fuzz);
  std::vector<Request> requests;
  for (const std::int64_t n : {9, 3}) {
    Request& request = requests.emplace_back(Request{.prompt = random_tokens(draws, n, vocabulary), .sampling = {.seed = 5, .max_tokens = 12}});
    request.prompt_logprobs = request.experts = true;
  }
  const std::vector<Generation> answers = engine.generate(requests);
  Sampled all;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    std::vector<std::int32_t> tokens = requests[i].prompt, experts;
    std::vector<float>& logprobs = all.logprobs.emplace_back();
    for (const auto& row : answers[i].prompt_experts) experts.insert(experts.end(), row.begin(), row.end());
    for (const GeneratedToken& token : answers[i].tokens) {
      tokens.push_back(token.id);
      experts.insert(experts.end(), token.experts.begin(), token.experts.end());
      logprobs.push_back(token.raw_logprob);
    }
    all.plain.push_back(TrainSequence::next_token(tokens));
    all.routed.push_back(all.plain.back());
    all.routed.back().experts = experts;
  }
  return all;
}

TEST_P(FamilyWays, RoutingThatAnEngineToldAndATrainerIsGivenChangesNoBit) {
  Runtime serving = runtime();
  Engine engine(serving, make_weight_set(serving.backend, model->manifest(), masters, serving.profile, 0), {.page_size = 4, .prefill_chunk = 5});
  const ExpertShape shape = model->facts().expert_shape();
  if (shape.row() == 0) {
    EXPECT_THROW(sample_with_experts(engine, model->facts().vocabulary), Error);
    return;
  }
  const Sampled sampled = sample_with_experts(engine, model->facts().vocabulary);
  std::vector<TrainSequence> others = sampled.routed;
  for (TrainSequence& d : others) {
    ASSERT_EQ(std::ssize(d.experts), std::ssize(d.tokens) * shape.row());
    for (std::size_t i = 0; i < d.experts.size(); ++i)  // the first experts, or those behind them
      d.experts[i] = static_cast<std::int32_t>(i) % static_cast<std::int32_t>(shape.experts_a_token) + d.tokens[i / static_cast<std::size_t>(shape.row())] % 2;
  }
  const auto same_in_every_way = [&](const auto& steps_of) {
    const Way one_step{.steps = 1};  // behind it the model may route otherwise
    const Steps want = steps_of(one_step, sampled.plain);
    for (std::size_t s = 0; s < sampled.logprobs.size(); ++s) {
      const std::vector<float>& row = want.logprobs[s];
      const std::vector<float> last(row.end() - std::ssize(sampled.logprobs[s]), row.end());
      EXPECT_EQ(std::memcmp(last.data(), sampled.logprobs[s].data(), last.size() * sizeof(float)), 0) << "the sampler's";
    }
    EXPECT_TRUE(steps_of(one_step, sampled.routed) == want);
    EXPECT_TRUE(steps_of(Way{.ranks = {1, 1, 2}, .steps = 1}, sampled.routed) == want) << "over expert-parallel ranks";
    EXPECT_NE(steps_of(one_step, others).hashes, want.hashes) << "the control";
  };
  same_in_every_way([&](const Way& way, const auto& data) { return whole(way, data); });
  same_in_every_way([&](const Way& way, const auto& data) { return adapter(way, data); });
}

TEST_P(FamilyWays, MuonHasTheBitsOfOneRankAndStateInAFileThoseOfMemory) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / fmt::format("lockstep-family-ways-{}", ::getpid());
  std::filesystem::create_directories(folder);
  const std::vector<TrainSequence> data = texts();
  const auto all_ways = [&](const auto& steps_of) {
    const Steps adam = steps_of(Way{}, data), muon = steps_of(Way{.dimuon = true}, data);
    EXPECT_EQ(adam.hashes[0], muon.hashes[0]) << "one gradient";
    EXPECT_NE(adam.hashes[1], muon.hashes[1]) << "two optimizers";
    EXPECT_TRUE(steps_of(Way{.ranks = {1, 2, 2}, .dimuon = true}, data) == muon) << "over ranks";
    EXPECT_TRUE(steps_of(Way{.state_folder = folder}, data) == adam);
    EXPECT_TRUE(steps_of(Way{.dimuon = true, .state_folder = folder}, data) == muon);
  };
  all_ways([&](const Way& way, const auto& rows) { return whole(way, rows); });
  all_ways([&](const Way& way, const auto& rows) { return adapter(way, rows); });
  EXPECT_TRUE(std::filesystem::is_empty(folder));
  std::filesystem::remove_all(folder);
}

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

TEST_P(FamilyWays, KernelsCountWhatTheConfigSays) {
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
TEST_P(FamilyWays, APlanIsWhatTrainingAndServingTake) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / fmt::format("lockstep-family-plan-{}", ::getpid());
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "config.json") << tiny_config(GetParam());
  const RuntimeSettings settings{.model = folder.string(), .profile = "cpu-bf16w", .threads = 1, .context = kPositions};
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

INSTANTIATE_TEST_SUITE_P(Families, FamilyWays, testing::ValuesIn(all_families()), [](const auto& info) { return info.param; });

}  // namespace
}  // namespace lockstep
