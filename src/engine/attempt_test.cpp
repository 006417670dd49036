// Answers that go on: a text that was rolled back is drawn with the noise of its attempt, and what was said before counts as said.
#include <algorithm>
#include <cmath>
#include <set>

#include "engine/rich_requests_test_tools.h"

namespace lockstep {
namespace {

std::vector<std::int32_t> ids_of(const Generation& g, std::size_t count) {
  std::vector<std::int32_t> ids;
  for (std::size_t i = 0; i < count; ++i) ids.push_back(g.tokens[i].id);
  return ids;
}

// Recomputed here in double, from the model's own log-probabilities: a token is the arg-max of them and of the noise that the attempt has.
TEST(Attempt, IsInTheLastWordOfTheNoisesCounter) {
  Plant plant;
  const std::int64_t vocabulary = plant.runtime.model->facts().vocabulary;
  ASSERT_LE(vocabulary, Request::kMaxPromptTargets);
  Engine engine(plant.runtime, plant.weights);
  std::set<std::int32_t> drawn;
  for (std::int32_t attempt = 0; attempt < 20; ++attempt) {
    Request request{.prompt = {3, 1, 4, 1, 5}, .sampling = {.seed = 77, .max_tokens = 1, .sample_index = 2, .attempt = attempt * attempt}};
    const std::int32_t token = engine.generate({request})[0].tokens[0].id;
    Request scores{.prompt = request.prompt, .sampling = {.max_tokens = 0}, .prompt_logprobs = true};
    scores.prompt.push_back(0);
    scores.prompt_targets_per_row = static_cast<std::int32_t>(vocabulary);
    for (std::size_t i = 0; i < request.prompt.size(); ++i)
      for (std::int32_t t = 0; t < vocabulary; ++t) scores.prompt_targets.push_back(t);
    const std::vector<float> logprobs = engine.generate({scores})[0].prompt_target_logprobs;
    const auto row = static_cast<std::size_t>((std::ssize(request.prompt) - 1) * vocabulary);
    std::int32_t best = -1;
    double most = -INFINITY;
    for (std::int32_t t = 0; t < vocabulary; ++t) {
      const auto last = static_cast<std::uint32_t>(attempt * attempt) * 256 + 1;
      const Philox::Words words = Philox::generate(77, {static_cast<std::uint32_t>(t / 4), 5, 2, last});
      const double u = (static_cast<double>(words[static_cast<std::size_t>(t % 4)] >> 9) + 0.5) * 0x1p-23;
      const double score = static_cast<double>(logprobs[row + static_cast<std::size_t>(t)]) - std::log(-std::log(u));
      if (score > most) best = t, most = score;
    }
    EXPECT_EQ(token, best) << attempt;
    drawn.insert(token);
  }
  EXPECT_GT(drawn.size(), 5u);  // the same token would come for ever otherwise
}

TEST(Attempt, OutsideItsRangeIsRefused) {
  Plant plant;
  Engine engine(plant.runtime, plant.weights);
  const auto refuses = [&](Request request, const std::string& word) {
    try {
      engine.submit(std::move(request));
      ADD_FAILURE() << word;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::invalid_argument);
      EXPECT_EQ(e.message().substr(0, word.size()), word);
    }
  };
  refuses({.prompt = {1, 2}, .sampling = {.attempt = -1}}, "attempt is -1");
  refuses({.prompt = {1, 2}, .sampling = {.attempt = SamplingParameters::kMaxAttempt + 1}}, "attempt is 1048576");
  refuses({.prompt = {1, 2}, .said = 2}, "said is 2, allowed is 0 to 1");
  refuses({.prompt = {1, 2}, .said = -1}, "said is -1");
  EXPECT_TRUE(engine.idle());
}

// Cut anywhere, with penalties, biases, constraints, guesses ahead: the rest is what it would have been.
TEST(Attempt, AnAnswerThatGoesOnHasTheBitsOfOneThatWasNotCut) {
  Plant plant("sharing", "cpu-bf16w", {.threads = 1});
  const std::int64_t vocabulary = plant.runtime.model->facts().vocabulary;
  std::vector<Request> requests = rich_requests(30, 13, vocabulary);
  for (Request& r : requests) {
    r.prompt_logprobs = false;
    r.prompt_targets.clear();
    r.prompt_targets_per_row = r.prompt_draws = 0;
    r.sampling.attempt = static_cast<std::int32_t>(r.sampling.seed % 3);
  }
  const EngineOptions wide{.page_size = 4, .cache_pages = 400, .max_batch_rows = 64},
      tight{.page_size = 4, .cache_pages = 20, .max_batch_rows = 32, .prefill_chunk = 5, .drafts = parse_drafts("ngram", 4)};
  std::vector<Generation> whole;
  {
    Engine engine(plant.runtime, plant.weights, wide);
    whole = engine.generate(constrained(requests, vocabulary));
  }
  std::int64_t other_without = 0, cut = 0;
  for (const EngineOptions& options : {wide, tight}) {
    std::vector<Request> rests = constrained(requests, vocabulary), forgetful;
    std::vector<std::vector<std::uint32_t>> want;
    std::vector<Request> run;
    RandomSequence draws(17, RandomStream::fuzz);
    for (std::size_t i = 0; i < rests.size(); ++i) {
      if (whole[i].tokens.size() < 2) continue;
      const std::size_t kept = 1 + draws.below(static_cast<std::uint32_t>(whole[i].tokens.size() - 1));
      Request& rest = rests[i];
      for (const std::int32_t id : ids_of(whole[i], kept)) rest.prompt.push_back(id);
      rest.said = static_cast<std::int32_t>(kept);
      rest.sampling.max_tokens -= rest.said;
      if (rest.sampling.constraint) dynamic_cast<HashConstraint&>(*rest.sampling.constraint).replayed = rest.said;
      Generation tail;
      tail.finish = whole[i].finish;
      tail.tokens.assign(whole[i].tokens.begin() + static_cast<std::ptrdiff_t>(kept), whole[i].tokens.end());
      want.push_back(bits_of(tail));
      run.push_back(rest);
      forgetful.push_back(requests[i]);
      forgetful.back().prompt = rest.prompt;
      forgetful.back().sampling.max_tokens = rest.sampling.max_tokens;
      ++cut;
    }
    Engine engine(plant.runtime, plant.weights, options);
    EXPECT_EQ(bits_of(engine.generate(run)), want);
    const std::vector<Generation> others = engine.generate(forgetful);
    for (std::size_t i = 0; i < others.size(); ++i) other_without += bits_of(others[i]) != want[i];
  }
  EXPECT_GT(cut, 30);
  EXPECT_GT(other_without, 5);  // where what was said is only a prompt, penalties and constraints show it
}

TEST(Attempt, WhatAConstraintDoesNotAllowCannotHaveBeenSaid) {
  struct Refuses : TokenConstraint {
    void allowed(std::span<std::uint32_t> words) override { words[0] = 2; }
    void accept(std::int32_t token) override {
      if (token == 6) fail(ErrorCode::invalid_argument, "no 6");
    }
    void truncate(std::int64_t) override {}
  };
  Plant plant;
  Engine engine(plant.runtime, plant.weights);
  Request request{.prompt = {6, 5, 6}, .sampling = {.max_tokens = 3, .constraint = std::make_shared<Refuses>()}, .said = 2};
  try {
    engine.submit(request);
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_EQ(e.message(), "the answer's token 1 (6) is not what its constraint allows: no 6");
  }
  EXPECT_TRUE(engine.idle());
  request.said = 0;
  EXPECT_EQ(engine.generate({request})[0].finish, FinishReason::length);
}

}  // namespace
}  // namespace lockstep
