// Eight short texts are learnt by heart, and greedy decoding repeats them: gradients, optimiser, weight versions and serving
// together do what they are for.
#include <gtest/gtest.h>

#include "engine/engine.h"
#include "system/golden_tools.h"
#include "train/schedule.h"
#include "train/trainer.h"

namespace lockstep {
namespace {

class Memorise : public testing::TestWithParam<std::string> {};

TEST_P(Memorise, EightTextsToALossBelowAHundredthAndGreedyDecodingRepeatsThem) {
  const std::shared_ptr<const Model> model = make_model(tiny_config(GetParam()));
  constexpr std::int32_t kEnd = 36;
  Runtime runtime({.threads = 2}, model, profile_by_name("cpu-bf16w"));
  Trainer trainer(runtime, initial_weights(model->manifest(), 4, 0.06), {});
  Engine engine(runtime, trainer.weights());

  RandomSequence draws(21, RandomStream::fuzz);
  std::vector<std::vector<std::int32_t>> texts;
  std::vector<TrainSequence> data;
  for (std::int32_t i = 0; i < 8; ++i) {
    texts.push_back(random_tokens(draws, 6 + draws.below(8), kEnd));
    texts.back().front() = i;  // the first token says which text it is
    texts.back().push_back(kEnd);
    data.push_back(TrainSequence::next_token(texts.back()));
  }
  const auto repeats = [&](std::size_t i) {
    Request request{.prompt = {texts[i][0]}, .sampling = {.temperature = 0, .max_tokens = 24, .stop_tokens = {kEnd}}};
    std::vector<std::int32_t> got = {texts[i][0]};
    const std::vector<Generation> answer = engine.generate({request});
    for (const GeneratedToken& t : answer[0].tokens) got.push_back(t.id);
    return got;
  };
  EXPECT_NE(repeats(0), texts[0]) << "nothing has been learnt yet";

  // The rate falls to nothing and the router's biases rest in the second half: the last step leaves the weights where they are.
  constexpr std::int64_t kSteps = 160;
  const Schedule schedule{.kind = "linear", .peak = 5e-3, .steps = kSteps};
  for (std::int64_t step = 0; step < kSteps; ++step) {
    trainer.forward_backward(data, {});
    trainer.optim_step({.learning_rate = learning_rate(schedule, step), .router_bias_rate = step < kSteps / 2 ? 1e-3 : 0});
  }
  // Of the weights that are served, not of those before the last step.
  double loss = 0, tokens = 0;
  for (const std::vector<float>& row : trainer.score(data))
    for (const float logprob : row) loss -= static_cast<double>(logprob), ++tokens;
  EXPECT_LT(loss / tokens, 0.01);
  engine.set_weights(trainer.weights());
  for (std::size_t i = 0; i < texts.size(); ++i) EXPECT_EQ(repeats(i), texts[i]) << "text " << i;
}

INSTANTIATE_TEST_SUITE_P(Families, Memorise, testing::ValuesIn(all_families()), [](const auto& info) { return info.param; });

}  // namespace
}  // namespace lockstep
