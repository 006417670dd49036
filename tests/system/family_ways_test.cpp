// Ways of training that hold in every family, of all weights and of an adapter: the routing that an engine told is given back, Muon, optimizer state
// in a file. (Memorisation, parity, ranks, exports and kept forwards walk the registry elsewhere.)
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>

#include "base/error.h"
#include "engine/engine.h"
#include "parity/engine_ways.h"
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
  static Steps steps_of(T& trainer, const Manifest& manifest, const Way& way, const std::vector<TrainSequence>& data) {
    Steps steps;
    for (int step = 0; step < way.steps; ++step) {
      for (auto& row : trainer.forward_backward(data, {}).logprobs) steps.logprobs.push_back(std::move(row));
      steps.hashes.push_back(images_hash(manifest, trainer.gradient_images()));
      trainer.optim_step({.learning_rate = 1e-3, .weight_decay = 0.1});
      steps.hashes.push_back(trainer.state().master_hash());
    }
    return steps;
  }
  Steps whole(const Way& way, const std::vector<TrainSequence>& data) const {
    Runtime own = runtime();
    Trainer trainer(own, masters, options(way));
    return steps_of(trainer, model->manifest(), way, data);
  }
  // Over experts too. Its first B is zero, so that the second step alone has a gradient of A.
  Steps adapter(const Way& way, const std::vector<TrainSequence>& data) const {
    Runtime own = runtime();
    const auto weights = make_weight_set(own.backend, model->manifest(), masters, own.profile, 0);
    const auto layout = std::make_shared<const AdapterLayout>(model->manifest(), AdapterSettings{.rank = 4, .alpha = 7, .unembedding = true});
    AdapterTrainer trainer(std::make_shared<FrozenBase>(own, weights, options(way)), layout, initial_adapter(*layout, 3), options(way).optimizer);
    return steps_of(trainer, layout->manifest(), way, data);
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

INSTANTIATE_TEST_SUITE_P(Families, FamilyWays, testing::ValuesIn(all_families()), [](const auto& info) { return info.param; });

}  // namespace
}  // namespace lockstep
