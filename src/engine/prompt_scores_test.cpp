// What is told of a prompt's positions beside its own tokens: given tokens scored, others drawn. (That no bit depends on chunks, other requests in the batch or
// preemption is engine_test.cpp's, whose random requests ask for both.)
#include "base/error.h"
#include "engine/engine_test_tools.h"

namespace lockstep {
namespace {

Request prompt_request(const std::vector<std::int32_t>& prompt) {
  Request request;
  request.prompt = prompt;
  request.prompt_logprobs = true;
  request.sampling.max_tokens = 1;
  request.sampling.seed = 11;
  return request;
}

struct PromptScores : ::testing::Test {
  Plant plant;
  Engine engine{plant.runtime, plant.weights, {.page_size = 4, .cache_pages = 64, .prefill_chunk = 5}};
  std::int64_t vocabulary = plant.runtime.model->facts().vocabulary;
  RandomSequence draws{3, RandomStream::fuzz};
  std::vector<std::int32_t> prompt = random_tokens(draws, 23, vocabulary);
};

TEST_F(PromptScores, TargetsHaveTheBitsOfThePromptsOwnAndNoneIsZero) {
  Request request = prompt_request(prompt);
  request.prompt_targets_per_row = 3;
  for (std::size_t i = 1; i < prompt.size(); ++i)
    request.prompt_targets.insert(request.prompt_targets.end(), {static_cast<std::int32_t>(i % static_cast<std::size_t>(vocabulary)), -1, prompt[i]});
  const Generation plain = engine.generate({prompt_request(prompt)})[0], g = engine.generate({request})[0];
  EXPECT_EQ(different_bits(plain.prompt_logprobs, g.prompt_logprobs), 0u);
  std::vector<float> own, none, others;
  for (std::size_t i = 0; i + 1 < prompt.size(); ++i) {
    others.push_back(g.prompt_target_logprobs[3 * i]);
    none.push_back(g.prompt_target_logprobs[3 * i + 1]);
    own.push_back(g.prompt_target_logprobs[3 * i + 2]);
  }
  EXPECT_EQ(different_bits(own, plain.prompt_logprobs), 0u);
  EXPECT_EQ(different_bits(none, std::vector<float>(prompt.size() - 1, 0.0f)), 0u);
  EXPECT_GT(different_bits(others, plain.prompt_logprobs), prompt.size() / 2);  // the control
}

TEST_F(PromptScores, DrawsAreOfTheDistributionAndTheirOwnNoise) {
  Request request = prompt_request(prompt);
  request.prompt_draws = 5;
  // Every token scored, so that each draw is found.
  request.prompt_targets_per_row = static_cast<std::int32_t>(vocabulary);
  for (std::size_t i = 1; i < prompt.size(); ++i)
    for (std::int32_t t = 0; t < static_cast<std::int32_t>(vocabulary); ++t) request.prompt_targets.push_back(t);
  const Generation g = engine.generate({request})[0];
  ASSERT_EQ(g.prompt_draws.size(), 5 * (prompt.size() - 1));
  std::size_t repeated = 0;
  for (std::size_t i = 0; i < g.prompt_draws.size(); ++i) {
    const TokenLogprob& draw = g.prompt_draws[i];
    ASSERT_TRUE(draw.id >= 0 && draw.id < vocabulary);
    const float scored = g.prompt_target_logprobs[i / 5 * static_cast<std::size_t>(vocabulary) + static_cast<std::size_t>(draw.id)];
    EXPECT_EQ(std::bit_cast<std::uint32_t>(draw.logprob), std::bit_cast<std::uint32_t>(scored));
    repeated += i % 5 > 0 && draw.id == g.prompt_draws[i - 1].id;
  }
  EXPECT_LT(repeated, g.prompt_draws.size() / 2);
  request.sampling.seed = 12;
  const Generation other = engine.generate({request})[0];
  std::size_t same = 0;
  for (std::size_t i = 0; i < g.prompt_draws.size(); ++i) same += g.prompt_draws[i].id == other.prompt_draws[i].id;
  EXPECT_LT(same, g.prompt_draws.size() / 2);
}

TEST_F(PromptScores, WhatCannotBeIsRefused) {
  const auto refusal = [&](const std::function<void(Request&)>& change) -> std::string {
    Request request = prompt_request({1, 2, 3});
    change(request);
    try {
      engine.generate({request});
    } catch (const Error& e) {
      return e.what();
    }
    return "taken";
  };
  EXPECT_NE(refusal([](Request& r) { r.prompt_targets_per_row = 1, r.prompt_targets = {1}; }).find("prompt_targets has 1 tokens, allowed are 2"),
            std::string::npos);
  EXPECT_NE(refusal([](Request& r) { r.prompt_targets_per_row = 1, r.prompt_targets = {1, 1 << 20}; }).find("prompt_targets[1] is 1048576"), std::string::npos);
  EXPECT_NE(refusal([](Request& r) { r.prompt_draws = 65; }).find("prompt_draws is 65, allowed is 0 to 64"), std::string::npos);
  EXPECT_NE(refusal([](Request& r) { r.prompt_draws = 1, r.prompt_logprobs = false; }).find("without prompt_logprobs"), std::string::npos);
  EXPECT_EQ(refusal([](Request& r) { r.prompt_draws = 1, r.prompt_targets_per_row = 1, r.prompt_targets = {1, -1}; }), "taken");
}

}  // namespace
}  // namespace lockstep
