// Eight short texts are learnt by heart, and greedy decoding repeats them: gradients, optimiser, weight versions and serving
// together do what they are for. By all parameters of every family; by adapters over bases that stay in four bits.
#include <gtest/gtest.h>

#include "engine/engine.h"
#include "system/golden_tools.h"
#include "train/adapter_trainer.h"
#include "train/schedule.h"
#include "train/trainer.h"

namespace lockstep {
namespace {

constexpr std::int32_t kEnd = 36;

struct EightTexts {
  std::vector<std::vector<std::int32_t>> texts;
  std::vector<TrainSequence> data;
  EightTexts() {
    RandomSequence draws(21, RandomStream::fuzz);
    for (std::int32_t i = 0; i < 8; ++i) {
      texts.push_back(random_tokens(draws, 6 + draws.below(8), kEnd));
      texts.back().front() = i;  // the first token says which text it is
      texts.back().push_back(kEnd);
      data.push_back(TrainSequence::next_token(texts.back()));
    }
  }
  std::vector<std::int32_t> repeated(Engine& engine, std::size_t i, const std::shared_ptr<const AdapterWeights>& adapter = nullptr) const {
    Request request{.prompt = {texts[i][0]}, .sampling = {.temperature = 0, .max_tokens = 24, .stop_tokens = {kEnd}}};
    request.adapter = adapter;
    std::vector<std::int32_t> got = {texts[i][0]};
    const std::vector<Generation> answer = engine.generate({request});
    for (const GeneratedToken& t : answer[0].tokens) got.push_back(t.id);
    return got;
  }
};

double mean_loss(const std::vector<std::vector<float>>& scores) {
  double loss = 0, tokens = 0;
  for (const std::vector<float>& row : scores)
    for (const float logprob : row) loss -= static_cast<double>(logprob), ++tokens;
  return loss / tokens;
}

void memorise_by_all_parameters(const std::string& family, const std::string& profile) {
  const std::shared_ptr<const Model> model = make_model(tiny_config(family));
  Runtime runtime({.threads = 2}, model, profile_by_name(profile));
  Trainer trainer(runtime, initial_weights(model->manifest(), 4, 0.06), {});
  Engine engine(runtime, trainer.weights());
  const EightTexts eight;
  EXPECT_NE(eight.repeated(engine, 0), eight.texts[0]) << "nothing has been learnt yet";

  // The rate falls to nothing and the router's biases rest in the second half: the last step leaves the weights where they are.
  constexpr std::int64_t kSteps = 160;
  const Schedule schedule{.kind = "linear", .peak = 5e-3, .steps = kSteps};
  for (std::int64_t step = 0; step < kSteps; ++step) {
    trainer.forward_backward(eight.data, {});
    trainer.optim_step({.learning_rate = learning_rate(schedule, step), .router_bias_rate = step < kSteps / 2 ? 1e-3 : 0});
  }
  // Of the weights that are served, not of those before the last step.
  EXPECT_LT(mean_loss(trainer.score(eight.data)), 0.01);
  engine.set_weights(trainer.weights());
  for (std::size_t i = 0; i < eight.texts.size(); ++i) EXPECT_EQ(eight.repeated(engine, i), eight.texts[i]) << "text " << i;
}

class Memorise : public testing::TestWithParam<std::string> {};

TEST_P(Memorise, EightTextsToALossBelowAHundredthAndGreedyDecodingRepeatsThem) { memorise_by_all_parameters(GetParam(), "cpu-bf16w"); }

TEST(MemoriseExpanded, KeysAndValuesOfEachHeadLearnThemToo) { memorise_by_all_parameters("deepseek_v3", "cpu-bf16w-expanded"); }

// The base keeps its random matrices in four bits, experts' too: all that is learnt is the adapter's.
TEST_P(Memorise, EightTextsByAnAdapterOverAnInt4Base) {
  const std::shared_ptr<const Model> model = make_model(tiny_config(GetParam()));
  Runtime runtime({.threads = 2}, model, profile_by_name("cpu-int4-base"));
  const auto weights = make_weight_set(runtime.backend, model->manifest(), initial_weights(model->manifest(), 4, 0.06), runtime.profile, 1);
  const auto base = std::make_shared<FrozenBase>(runtime, weights, TrainerOptions{});
  const auto layout = std::make_shared<const AdapterLayout>(model->manifest(), AdapterSettings{.rank = 16, .alpha = 32, .unembedding = true});
  AdapterTrainer trainer(base, layout, initial_adapter(*layout, 3));
  Engine engine(runtime, weights);
  const EightTexts eight;
  EXPECT_NE(eight.repeated(engine, 0, trainer.weights()), eight.texts[0]) << "nothing has been learnt yet";

  constexpr std::int64_t kSteps = 160;
  const Schedule schedule{.kind = "linear", .peak = 1e-2, .steps = kSteps};
  for (std::int64_t step = 0; step < kSteps; ++step) {
    trainer.forward_backward(eight.data, {});
    trainer.optim_step({.learning_rate = learning_rate(schedule, step)});
  }
  EXPECT_LT(mean_loss(trainer.score(eight.data)), 0.01);
  for (std::size_t i = 0; i < eight.texts.size(); ++i) EXPECT_EQ(eight.repeated(engine, i, trainer.weights()), eight.texts[i]) << "text " << i;
  EXPECT_NE(eight.repeated(engine, 0), eight.texts[0]) << "the base knows nothing of it";
}

INSTANTIATE_TEST_SUITE_P(Families, Memorise, testing::ValuesIn(all_families()), [](const auto& info) { return info.param; });

}  // namespace
}  // namespace lockstep
