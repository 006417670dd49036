// Tokens that are taken back leave nothing behind: penalties, constraints, pages are what they were, and what comes again has its bits.
#include <rapidcheck.h>

#include "engine/acceptance.h"
#include "engine/rich_requests_test_tools.h"

namespace lockstep {
namespace {

TEST(Truncate, PenaltiesAreWhatTheyWere) {
  const bool same = rc::check([] {
    SamplingParameters sampling;
    sampling.repetition_penalty = *rc::gen::element(1.0f, 1.5f);
    sampling.presence_penalty = *rc::gen::element(0.0f, 0.5f);
    for (const int token : *rc::gen::unique<std::vector<int>>(3, rc::gen::inRange(0, 12))) sampling.logit_bias.push_back({token, 0.25f});
    const auto tokens = rc::gen::container<std::vector<std::int32_t>>(rc::gen::inRange(0, 12));
    const std::vector<std::int32_t> prompt = *tokens, kept = *tokens, dropped = *tokens, later = *tokens;
    LogitAdjustments adjustments, want;
    adjustments.begin(sampling, prompt);
    want.begin(sampling, prompt);
    const auto accept = [](LogitAdjustments& a, const std::vector<std::int32_t>& all) {
      for (const std::int32_t token : all) a.accept(token);
    };
    accept(adjustments, kept);
    accept(want, kept);
    accept(adjustments, dropped);
    adjustments.truncate(dropped);
    RC_ASSERT(adjustments.entries() == want.entries());
    accept(adjustments, later);
    accept(want, later);
    RC_ASSERT(adjustments.entries() == want.entries());
  });
  EXPECT_TRUE(same);
}

constexpr std::int64_t kVocabulary = 64;

GeneratedToken token_of(std::int32_t id) {
  GeneratedToken token;
  token.id = id;
  return token;
}

// All of a request that tokens change.
struct RequestState {
  std::vector<std::int32_t> tokens;
  std::size_t said = 0;
  std::vector<LogitAdjustments::Entry> entries;
  std::vector<std::uint32_t> mask;
  bool operator==(const RequestState&) const = default;
};
RequestState state_of(Sequence& s, std::int64_t vocabulary) {
  RequestState state{s.tokens, s.generation.tokens.size(), s.adjustments.entries(), std::vector<std::uint32_t>(static_cast<std::size_t>(vocabulary / 32))};
  auto constraint = *std::static_pointer_cast<HashConstraint>(s.sampling.constraint);  // a copy: asking leaves it as it was
  constraint.allowed(state.mask);
  return state;
}

TEST(Truncate, AfterAcceptRestoresARequestExactly) {
  const bool same = rc::check([] {
    Sequence s;
    s.sampling.max_tokens = 1000;
    s.sampling.presence_penalty = 0.5f;
    s.sampling.repetition_penalty = *rc::gen::element(1.0f, 1.2f);
    s.sampling.constraint = std::make_shared<HashConstraint>(*rc::gen::arbitrary<std::uint32_t>(), kVocabulary);
    s.tokens = *rc::gen::container<std::vector<std::int32_t>>(5, rc::gen::inRange(0, 64));
    s.prompt_length = s.known();
    s.adjustments.begin(s.sampling, s.tokens);
    // What the constraint allows, some tokens at a time.
    const auto say = [&](std::size_t count, std::uint32_t pick) {
      for (std::size_t i = 0; i < count; ++i) {
        std::vector<std::uint32_t> mask(kVocabulary / 32);
        s.sampling.constraint->allowed(mask);
        std::vector<std::int32_t> may;
        for (std::int32_t t = 0; t < kVocabulary; ++t)
          if (mask[static_cast<std::size_t>(t / 32)] >> (t % 32) & 1) may.push_back(t);
        GeneratedToken token = token_of(may[(pick + i) % may.size()]);
        RC_ASSERT(accept_tokens(s, {&token, 1}) == FinishReason::none);
      }
    };
    const auto pick = *rc::gen::arbitrary<std::uint32_t>();
    const auto kept = *rc::gen::inRange<std::size_t>(0, 12), dropped = *rc::gen::inRange<std::size_t>(0, 12);
    say(kept, pick);
    const RequestState before = state_of(s, kVocabulary);
    say(dropped, pick / 7);
    const RequestState after = state_of(s, kVocabulary);
    RC_ASSERT(truncate_tokens(s, kept) == FinishReason::none);
    RC_ASSERT(state_of(s, kVocabulary) == before);
    say(dropped, pick / 7);
    RC_ASSERT(state_of(s, kVocabulary) == after);
  });
  EXPECT_TRUE(same);
}

TEST(Truncate, AcceptTakesTokensUpToTheOneThatEndsTheRequest) {
  const auto accepted = [](SamplingParameters sampling, std::vector<std::int32_t> ids) {
    Sequence s;
    s.sampling = std::move(sampling);
    s.tokens = {1};
    s.prompt_length = 1;
    std::vector<GeneratedToken> tokens;
    for (const std::int32_t id : ids) tokens.push_back(token_of(id));
    const FinishReason end = accept_tokens(s, tokens);
    EXPECT_EQ(s.known(), s.accepted());
    return std::pair(end, s.known() - 1);
  };
  using Taken = std::pair<FinishReason, std::int64_t>;
  EXPECT_EQ(accepted({.max_tokens = 5}, {}), (Taken{FinishReason::none, 0}));
  EXPECT_EQ(accepted({.max_tokens = 5}, {4, 5, 6}), (Taken{FinishReason::none, 3}));
  EXPECT_EQ(accepted({.max_tokens = 2}, {4, 5, 6}), (Taken{FinishReason::length, 2}));
  EXPECT_EQ(accepted({.max_tokens = 5, .stop_tokens = {5}}, {4, 5, 6}), (Taken{FinishReason::stop, 2}));
  struct Refuses : TokenConstraint {
    void allowed(std::span<std::uint32_t>) override {}
    void accept(std::int32_t token) override {
      if (token == 6) throw std::runtime_error("no 6");
    }
    void truncate(std::int64_t) override {}
  };
  EXPECT_EQ(accepted({.max_tokens = 5, .constraint = std::make_shared<Refuses>()}, {4, 5, 6, 7}), (Taken{FinishReason::error, 2}));
}

TEST(Truncate, WhatIsTakenBackComesAgainWithItsBits) {
  Plant plant("sharing", "cpu-bf16w", {.threads = 1});
  const std::int64_t vocabulary = plant.runtime.model->facts().vocabulary;
  const std::vector<Request> requests = rich_requests(16, 11, vocabulary);
  const EngineOptions wide{.page_size = 4, .cache_pages = 400, .max_batch_rows = 64},
      tight{.page_size = 4, .cache_pages = 20, .max_batch_rows = 32, .prefill_chunk = 5};
  std::vector<std::vector<std::uint32_t>> want;
  {
    Engine engine(plant.runtime, plant.weights, wide);
    for (const Generation& g : engine.generate(constrained(requests, vocabulary))) want.push_back(bits_of(g));
  }
  std::int64_t taken = 0, preemptions = 0;
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    RandomSequence draws(seed, RandomStream::fuzz);
    Engine engine(plant.runtime, plant.weights, seed % 2 ? wide : tight);
    std::vector<std::vector<std::uint32_t>> got(requests.size());
    std::vector<std::size_t> told(requests.size());
    std::vector<Request> run = constrained(requests, vocabulary);
    for (std::size_t i = 0; i < run.size(); ++i)
      engine.submit(
          run[i], [&told, i](std::uint64_t, const GeneratedToken&) { ++told[i]; }, [&got, i](Generation&& g) { got[i] = bits_of(g); });
    for (int left = 40; engine.step();) {
      const std::vector<Sequence*> running = engine.scheduler().running();
      if (running.empty() || left == 0 || draws.below(2)) continue;
      const Sequence& s = *running[draws.below(static_cast<std::uint32_t>(running.size()))];
      const auto said = static_cast<std::uint32_t>(s.generation.tokens.size());
      if (said == 0) continue;
      const std::uint32_t kept = draws.below(said + 1);
      engine.truncate(s.id, kept);
      EXPECT_EQ(s.generation.tokens.size(), kept);
      taken += said - kept;
      --left;
    }
    EXPECT_EQ(got, want) << seed;
    std::int64_t all = 0;
    for (const std::size_t n : told) all += static_cast<std::int64_t>(n);
    EXPECT_EQ(all, engine.counters().sampled_tokens);  // taken back and told again
    preemptions += engine.counters().preemptions;
    EXPECT_EQ(engine.scheduler().pages().free_pages() + engine.scheduler().prefix_cache().idle(), engine.scheduler().pages().total());
    // What stands in the prefix cache is what it says: the same requests find it.
    std::vector<std::vector<std::uint32_t>> again;
    for (const Generation& g : engine.generate(constrained(requests, vocabulary))) again.push_back(bits_of(g));
    EXPECT_EQ(again, want) << seed;
  }
  EXPECT_GT(taken, 100);
  EXPECT_GT(preemptions, 0);
}

TEST(Truncate, OfAnUnknownRequestOrOfNothingIsIgnored) {
  Plant plant("sharing", "cpu-f32", {.threads = 1});
  Engine engine(plant.runtime, plant.weights);
  engine.truncate(7, 0);
  const std::uint64_t id = engine.submit({.prompt = {1, 2, 3}, .sampling = {.max_tokens = 3}});
  engine.truncate(id, 0);  // it waits
  engine.step();
  engine.truncate(id, 1);
  EXPECT_EQ(engine.scheduler().running()[0]->generation.tokens.size(), 1u);
  engine.run_until_idle();
  engine.truncate(id, 0);  // it has finished
  EXPECT_TRUE(engine.idle());
}

}  // namespace
}  // namespace lockstep
