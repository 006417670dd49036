// Rejection sampling in an engine: the same bytes alone, beside other requests, after preemption, from the cache, in any pages and chunks;
// log-probabilities that are those of scoring; what masks, stop tokens and temperature 0 do to it.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>

#include "engine/drafts/verify.h"
#include "engine/drafts_test_tools.h"

namespace lockstep {
namespace {

std::vector<Request> by_rejection(std::vector<Request> requests, const char* sources, std::int64_t tokens) {
  for (Request& r : requests) {
    r.drafts = parse_drafts(sources, tokens);
    r.drafts->acceptance = DraftOptions::Acceptance::rejection;
  }
  return requests;
}

std::vector<Request> words_for_rejection(std::int64_t count, std::int64_t vocabulary) {
  RandomSequence draws(3, RandomStream::fuzz);
  std::vector<Request> requests(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < requests.size(); ++i) {
    constexpr float kTemperatures[] = {0.2f, 0.5f, 1.5f, 1};
    SamplingParameters& s = requests[i].sampling;
    requests[i].prompt = random_tokens(draws, 1 + static_cast<std::int64_t>(i * 5 % 24), vocabulary);
    for (int copy = 0; copy < 2; ++copy)  // so that n-grams repeat
      for (std::size_t at = 0; at < 6; ++at) requests[i].prompt.push_back(static_cast<std::int32_t>((i + at) % static_cast<std::size_t>(vocabulary)));
    s = {.temperature = kTemperatures[i % 4], .seed = i, .max_tokens = 40};
    if (i % 3 == 1) s.top_p = 0.9f;
    if (i % 4 == 2) s.top_k = 20;
    if (i % 5 == 3) s.min_p = 0.02f;
    if (i % 4 == 3) s.frequency_penalty = 0.5f;
  }
  return requests;
}

TEST(Rejection, TheSameBytesUnderAnyLoad) {
  MtpPlant plant;
  // What they say without guesses is predicted.
  std::vector<Request> asked = words_for_rejection(10, plant.vocabulary());
  Engine plain(plant.runtime, plant.weights);
  const std::vector<Generation> said = plain.generate(constrained(asked, plant.vocabulary()));
  for (std::size_t i = 0; i < asked.size(); ++i)
    for (const GeneratedToken& t : said[i].tokens) asked[i].prediction.push_back(t.id);
  for (const char* sources : {"mtp", "ngram,prediction", "prediction,mtp,ngram,grammar"}) {
    const std::vector<Request> requests = by_rejection(asked, sources, 4);
    std::vector<Generation> want;
    {
      Engine engine(plant.runtime, plant.weights, {.page_size = 16, .cache_pages = 400, .prefix_cache = false}, plant.layer);
      for (const Request& r : constrained(requests, plant.vocabulary())) want.push_back(engine.generate({r})[0]);
      EXPECT_GT(engine.counters().drafts.tokens, 50) << sources;
      EXPECT_GT(engine.counters().drafts.accepted, 5) << sources;
    }
    std::int64_t preemptions = 0;
    for (const EngineOptions& options : {EngineOptions{.page_size = 16, .cache_pages = 400}, EngineOptions{.page_size = 1, .cache_pages = 3000},
                                         EngineOptions{.page_size = 4, .cache_pages = 40, .max_batch_rows = 12, .prefill_chunk = 5},
                                         EngineOptions{.page_size = 4, .cache_pages = 600, .max_batch_rows = 3}}) {
      Engine engine(plant.runtime, plant.weights, options, plant.layer);
      for (const char* when : {"first", "from the cache"}) {
        const std::vector<Generation> got = engine.generate(constrained(requests, plant.vocabulary()));
        for (std::size_t i = 0; i < got.size(); ++i)
          EXPECT_EQ(all_bits_of(got[i]), all_bits_of(want[i])) << sources << ", request " << i << ", pages of " << options.page_size << ", " << when;
      }
      EXPECT_GT(engine.counters().cache_hit_tokens, 0) << sources;
      preemptions += engine.counters().preemptions;
    }
    EXPECT_GT(preemptions, 0) << sources;
  }
}

// Control: an answer does depend on where cycles begin. So lengths that fitted the room would be seen above.
TEST(Rejection, AnotherLengthIsAnotherAnswer) {
  MtpPlant plant;
  Engine engine(plant.runtime, plant.weights, {.page_size = 16, .cache_pages = 400}, plant.layer);
  const std::vector<Generation> four = engine.generate(by_rejection(words_for_rejection(8, plant.vocabulary()), "mtp", 4)),
                                two = engine.generate(by_rejection(words_for_rejection(8, plant.vocabulary()), "mtp", 2));
  std::int64_t differ = 0;
  for (std::size_t i = 0; i < four.size(); ++i) differ += bits_of(four[i]) != bits_of(two[i]);
  EXPECT_GT(differ, 0);
}

// Both log-probabilities are the model's own: those of the same text where it was forced token by token are told by scoring its prompt.
TEST(Rejection, LogProbabilitiesAreThoseOfScoring) {
  MtpPlant plant;
  std::vector<Request> requests = words_for_rejection(8, plant.vocabulary());
  for (Request& r : requests) r.sampling = {.temperature = 1, .seed = r.sampling.seed, .max_tokens = 30};
  Engine engine(plant.runtime, plant.weights, {.page_size = 16, .cache_pages = 400}, plant.layer);
  const std::vector<Generation> said = engine.generate(by_rejection(requests, "mtp,ngram", 5));
  EXPECT_GT(engine.counters().drafts.accepted, 10);
  for (std::size_t i = 0; i < said.size(); ++i) {
    Request scored{.prompt = requests[i].prompt, .sampling = {.max_tokens = 0}, .prompt_logprobs = true};
    for (const GeneratedToken& t : said[i].tokens) scored.prompt.push_back(t.id);
    const Generation g = engine.generate({scored})[0];
    for (std::size_t t = 0; t < said[i].tokens.size(); ++t) {
      const float want = g.prompt_logprobs[requests[i].prompt.size() - 1 + t];
      EXPECT_EQ(std::bit_cast<std::uint32_t>(said[i].tokens[t].raw_logprob), std::bit_cast<std::uint32_t>(want)) << i << ", token " << t;
      EXPECT_EQ(std::bit_cast<std::uint32_t>(said[i].tokens[t].sampling_logprob), std::bit_cast<std::uint32_t>(want)) << i << ", token " << t;
    }
  }
}

// The chances of the next token behind a prompt, from scored log-probabilities.
std::vector<double> chances_by_hand(Engine& engine, const Request& asked, std::int64_t vocabulary) {
  Request scored{.prompt = asked.prompt, .sampling = {.max_tokens = 0}, .prompt_logprobs = true};
  scored.prompt.push_back(0);
  scored.prompt_targets_per_row = static_cast<std::int32_t>(vocabulary);
  for (std::size_t row = 0; row < asked.prompt.size(); ++row)
    for (std::int32_t v = 0; v < vocabulary; ++v) scored.prompt_targets.push_back(v);
  const std::vector<float> all = engine.generate({scored})[0].prompt_target_logprobs;
  std::vector<double> chances;
  for (auto logprob = all.end() - vocabulary; logprob != all.end(); ++logprob)
    chances.push_back(std::exp(static_cast<double>(*logprob) / asked.sampling.temperature));
  std::vector<double> ranked = chances;
  std::sort(ranked.begin(), ranked.end(), std::greater<>());
  const std::int32_t k = asked.sampling.top_k;
  for (double& chance : chances)
    if (k > 0 && chance < ranked[static_cast<std::size_t>(k - 1)]) chance = 0;
  const double sum = std::accumulate(chances.begin(), chances.end(), 0.0);
  for (double& chance : chances) chance /= sum;
  return chances;
}

// What the layer draws its first guess with.
TokenLaw law_of_layer(Engine& engine, Request request) {
  request.sampling.max_tokens = 3;
  TokenLaw law;
  engine.submit(request);
  while (engine.step())
    for (const Sequence* s : engine.scheduler().running())
      if (law.chances.empty() && !s->drafting->layer_laws.empty()) law = *s->drafting->layer_laws[0];
  return law;
}

// First tokens of many seeds have the model's law, and as many guesses are taken as sum min(p, q) says, p by hand and q as it was drawn with.
TEST(Rejection, TokensAndAcceptanceHaveTheirLaws) {
  MtpPlant plant;
  const char* slow = std::getenv("LOCKSTEP_SLOW_TESTS");
  const std::int64_t count = slow && *slow == '1' ? 100'000 : 6'000, vocabulary = plant.vocabulary();
  for (const auto& [temperature, top_k] : {std::pair(1.0f, 0), std::pair(0.7f, 12)}) {
    Engine engine(plant.runtime, plant.weights, {.page_size = 1, .cache_pages = 2000}, plant.layer);
    const Request one = by_rejection({{.prompt = {4, 5, 1, 9, 4, 5}, .sampling = {.temperature = temperature, .top_k = top_k, .max_tokens = 2}}}, "mtp", 1)[0];
    const std::vector<double> p = chances_by_hand(engine, one, vocabulary);
    const TokenLaw q = law_of_layer(engine, one);
    ASSERT_FALSE(q.chances.empty());
    double taken_by_law = 0;
    for (std::int32_t v = 0; v < vocabulary; ++v) taken_by_law += std::min(p[static_cast<std::size_t>(v)], q.chance_of(v));
    EXPECT_GT(taken_by_law, 0.05);
    EXPECT_LT(taken_by_law, 0.98);
    std::vector<Request> requests(static_cast<std::size_t>(count), one);
    for (std::size_t i = 0; i < requests.size(); ++i) requests[i].sampling.seed = i;
    std::vector<std::int64_t> said(static_cast<std::size_t>(vocabulary), 0);
    std::int64_t taken = 0;
    for (const Generation& g : engine.generate(requests)) {
      ++said[static_cast<std::size_t>(g.tokens[0].id)];
      EXPECT_EQ(g.drafts.tokens, 1);
      taken += g.drafts.accepted;
    }
    const auto n = static_cast<double>(count);
    double chi_square = 0, freedom = -1, rest_want = 0, rest_got = 0;  // rare tokens count as one
    const auto add = [&](double got, double want) { chi_square += (got - want) * (got - want) / want, ++freedom; };
    for (std::size_t v = 0; v < said.size(); ++v) {
      EXPECT_TRUE(p[v] > 0 || said[v] == 0) << v;
      if (p[v] * n < 5) rest_want += p[v] * n, rest_got += static_cast<double>(said[v]);
      else add(static_cast<double>(said[v]), p[v] * n);
    }
    if (rest_want > 0) add(rest_got, rest_want);
    EXPECT_LT(std::abs(chi_square - freedom) / std::sqrt(2 * freedom), 5) << chi_square << " of " << freedom << " at temperature " << temperature;
    EXPECT_LT(std::abs(static_cast<double>(taken) - taken_by_law * n), 4 * std::sqrt(n * taken_by_law * (1 - taken_by_law))) << taken << " of " << count;
  }
}

// At temperature 0 a guess is taken where it is the arg-max: nothing changes.
TEST(Rejection, AtTemperatureZeroItIsCoupled) {
  MtpPlant plant;
  std::vector<Request> requests = words_for_rejection(6, plant.vocabulary());
  for (Request& r : requests) r.sampling.temperature = 0;
  Engine plain(plant.runtime, plant.weights), engine(plant.runtime, plant.weights, {}, plant.layer);
  const std::vector<Generation> want = plain.generate(requests), got = engine.generate(by_rejection(requests, "mtp", 3));
  EXPECT_GT(engine.counters().drafts.tokens, 0);
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_EQ(all_bits_of(got[i]), all_bits_of(want[i])) << i;
}

TEST(Rejection, WhatWouldDependOnTheLoadIsRefused) {
  MtpPlant plant;
  Engine engine(plant.runtime, plant.weights, {}, plant.layer);
  for (const auto& [sources, part] : {std::pair("auto", "'auto', whose length depends"), std::pair("ngram,siblings", "whose siblings depend")}) {
    try {
      engine.submit(by_rejection({{.prompt = {1, 2}, .sampling = {.max_tokens = 4}}}, sources, 3)[0]);
      ADD_FAILURE() << sources << " was taken";
    } catch (const Error& e) {
      EXPECT_NE(e.message().find(part), std::string::npos) << e.message();
    }
  }
  EXPECT_TRUE(engine.idle());
}

}  // namespace
}  // namespace lockstep
