// Penalties, biases, min_p, likeliest tokens and constraints in the engine: what they mean, that the bits depend on the
// request alone, and that a request which goes wrong goes alone.
#include <cmath>
#include <set>

#include "base/error.h"
#include "engine/engine.h"
#include "engine/rich_requests_test_tools.h"

namespace lockstep {
namespace {

TEST(Sampling, BitsDependOnTheRequestAlone) {
  Plant plant("sharing", "cpu-bf16w", {.isa = InstructionSet::scalar, .threads = 1});
  const std::int64_t vocabulary = plant.runtime.model->facts().vocabulary;
  const std::vector<Request> requests = rich_requests(30, 11, vocabulary);
  std::vector<std::vector<std::uint32_t>> expected;
  for (const Request& r : constrained(requests, vocabulary)) {
    Engine engine(plant.runtime, plant.weights, {.page_size = 64, .cache_pages = 2, .prefix_cache = false});
    expected.push_back(bits_of(engine.generate({r})[0]));
  }
  std::int64_t preemptions = 0, hits = 0;
  const auto compare = [&](const BackendOptions& backend, const EngineOptions& options, const std::string& what) {
    Plant other("sharing", "cpu-bf16w", backend);
    Engine engine(other.runtime, other.weights, options);
    const std::vector<Request> run = constrained(requests, vocabulary);
    const std::vector<Generation> got = engine.generate(run);
    std::size_t different = 0;
    for (std::size_t i = 0; i < got.size(); ++i) {
      different += bits_of(got[i]) != expected[i];
      const auto* constraint = dynamic_cast<const HashConstraint*>(run[i].sampling.constraint.get());
      if (!constraint) continue;
      EXPECT_EQ(constraint->accepted, static_cast<std::int64_t>(got[i].tokens.size()));
    }
    EXPECT_EQ(different, 0u) << what;
    preemptions += engine.counters().preemptions;
    hits += engine.counters().cache_hit_tokens;
  };
  const EngineOptions wide{.page_size = 4, .cache_pages = 400, .max_batch_rows = 64};
  const EngineOptions tight{.page_size = 4, .cache_pages = 20, .max_batch_rows = 32, .prefill_chunk = 5};
  compare({.threads = 2}, wide, "many pages");
  compare({.threads = 2}, tight, "few pages");
  compare({.kind = BackendKind::deferred, .threads = 1}, tight, "deferred");
  compare({.kind = BackendKind::traced, .threads = 1}, wide, "traced");
  EXPECT_GT(preemptions, 0);
  EXPECT_GT(hits, 0);
  // The comparison can fail: without what was asked for beyond plain sampling, most answers are others.
  std::vector<Request> plain = requests;
  for (Request& r : plain) {
    SamplingParameters& s = r.sampling;
    s.min_p = s.presence_penalty = s.frequency_penalty = 0;
    s.repetition_penalty = 1;
    s.logit_bias.clear();
  }
  Engine engine(plant.runtime, plant.weights, wide);
  const std::vector<Generation> others = engine.generate(plain);
  std::size_t different = 0;
  for (std::size_t i = 0; i < others.size(); ++i) different += bits_of(others[i]) != expected[i];
  EXPECT_GT(different, others.size() / 2);
}

TEST(Sampling, LikeliestTokensHaveTheBitsOfTheLogProbabilities) {
  Plant plant;
  const std::int64_t vocabulary = plant.runtime.model->facts().vocabulary;
  Request request{.prompt = {1, 2, 3, 4, 5, 6, 7}, .sampling = {.temperature = 0, .max_tokens = 12}, .prompt_logprobs = true};
  Engine engine(plant.runtime, plant.weights, {.max_batch_rows = 3});
  const Generation plain = engine.generate({request})[0];
  request.sampling.top_logprobs = 20;
  const Generation told = engine.generate({request})[0];
  ASSERT_EQ(told.tokens.size(), plain.tokens.size());
  for (std::size_t i = 0; i < told.tokens.size(); ++i) {
    EXPECT_TRUE(plain.tokens[i].top.empty());
    const std::vector<TokenLogprob>& top = told.tokens[i].top;
    ASSERT_EQ(top.size(), 20u);
    EXPECT_EQ(top[0].id, told.tokens[i].id);
    EXPECT_EQ(std::bit_cast<std::uint32_t>(top[0].logprob), std::bit_cast<std::uint32_t>(plain.tokens[i].raw_logprob));
    for (std::size_t j = 1; j < top.size(); ++j) EXPECT_GE(top[j - 1].logprob, top[j].logprob);
  }
  ASSERT_EQ(told.prompt_top_logprobs.size(), 6u);
  EXPECT_TRUE(plain.prompt_top_logprobs.empty());
  EXPECT_EQ(different_bits(told.prompt_logprobs, plain.prompt_logprobs), 0u);
  int found = 0;
  for (std::size_t i = 0; i < told.prompt_top_logprobs.size(); ++i) {
    ASSERT_EQ(told.prompt_top_logprobs[i].size(), 20u);
    for (const TokenLogprob& t : told.prompt_top_logprobs[i]) {
      EXPECT_LT(t.id, vocabulary);
      if (t.id != request.prompt[i + 1]) continue;
      ++found;
      EXPECT_EQ(std::bit_cast<std::uint32_t>(t.logprob), std::bit_cast<std::uint32_t>(plain.prompt_logprobs[i]));
    }
  }
  EXPECT_GT(found, 0);
}

// Allows the given tokens, or throws.
class FixedConstraint : public TokenConstraint {
 public:
  explicit FixedConstraint(std::vector<std::int32_t> tokens, int good = 1000) : tokens_(std::move(tokens)), good_(good) {}
  void allowed(std::span<std::uint32_t> words) override {
    if (good_-- == 0) throw std::runtime_error("the constraint is broken");
    for (std::int32_t t : tokens_) words[static_cast<std::size_t>(t / 32)] |= 1u << t % 32;
  }
  void accept(std::int32_t) override {
    if (good_ == -100) throw std::runtime_error("it does not accept");
  }
  void truncate(std::int64_t) override {}

 private:
  std::vector<std::int32_t> tokens_;
  int good_;
};

TEST(Sampling, LogProbabilitiesAreOverTheAllowedSet) {
  Plant plant;
  Engine engine(plant.runtime, plant.weights);
  Request request{.prompt = {1, 2, 3}, .sampling = {.max_tokens = 40}};
  request.sampling.top_logprobs = 5;
  const std::vector<std::int32_t> tokens{3, 20, 21};
  request.sampling.constraint = std::make_shared<FixedConstraint>(tokens);
  const Generation g = engine.generate({request})[0];
  ASSERT_EQ(g.tokens.size(), 40u);
  std::set<std::int32_t> ids;
  for (const GeneratedToken& t : g.tokens) {
    ids.insert(t.id);
    ASSERT_EQ(t.top.size(), 3u);
    double sum = 0;
    for (const TokenLogprob& other : t.top) sum += std::exp(static_cast<double>(other.logprob));
    EXPECT_NEAR(sum, 1, 1e-5);
    EXPECT_EQ(t.raw_logprob, t.sampling_logprob);
  }
  EXPECT_EQ(ids, std::set<std::int32_t>(tokens.begin(), tokens.end()));
  request.sampling.constraint = std::make_shared<FixedConstraint>(std::vector<std::int32_t>{9});
  const Generation only = engine.generate({request})[0];
  EXPECT_EQ(only.tokens.size(), 40u);
  for (const GeneratedToken& t : only.tokens) {
    EXPECT_EQ(t.id, 9);
    EXPECT_EQ(t.raw_logprob, 0);
  }
}

TEST(Sampling, AConstraintThatAllowsNothingOrThrowsEndsItsRequestAlone) {
  Plant plant;
  Engine engine(plant.runtime, plant.weights);
  const std::vector<Request> good = random_requests(6, 5, plant.runtime.model->facts().vocabulary);
  const std::vector<Generation> before = engine.generate(good);
  std::vector<Request> requests = good;
  for (int i = 0; i < 3; ++i) requests.push_back({.prompt = {1, 2}, .sampling = {.max_tokens = 10}});
  requests[6].sampling.constraint = std::make_shared<FixedConstraint>(std::vector<std::int32_t>{});
  requests[7].sampling.constraint = std::make_shared<FixedConstraint>(std::vector<std::int32_t>{5, 6}, 3);
  requests[8].sampling.constraint = std::make_shared<FixedConstraint>(std::vector<std::int32_t>{5, 6}, -99);
  const std::int64_t failed = engine.counters().failed_requests;
  const std::vector<Generation> after = engine.generate(requests);
  for (std::size_t i = 0; i < good.size(); ++i) EXPECT_EQ(bits_of(after[i]), bits_of(before[i]));
  EXPECT_EQ(after[6].finish, FinishReason::error);
  EXPECT_EQ(after[6].error, "the constraint allows no token after 0 generated ones");
  EXPECT_EQ(after[7].finish, FinishReason::error);
  EXPECT_EQ(after[7].tokens.size(), 3u);
  EXPECT_EQ(after[7].error, "the constraint failed at token 3: the constraint is broken");
  EXPECT_EQ(after[8].finish, FinishReason::error);
  EXPECT_EQ(after[8].error, "the constraint failed at token 0: it does not accept");
  EXPECT_EQ(engine.counters().failed_requests - failed, 3);
  EXPECT_EQ(engine.scheduler().pages().free_pages() + engine.scheduler().prefix_cache().idle(), engine.scheduler().pages().total());
}

TEST(Sampling, PenaltiesAndBiasesDoWhatTheySay) {
  Plant plant;
  Engine engine(plant.runtime, plant.weights);
  Request request{.prompt = {1, 2, 3}, .sampling = {.temperature = 0, .max_tokens = 30}};
  const auto ids = [&] {
    std::vector<std::int32_t> tokens;
    const Generation g = engine.generate({request})[0];
    for (const GeneratedToken& t : g.tokens) tokens.push_back(t.id);
    return tokens;
  };
  const std::vector<std::int32_t> plain = ids();
  request.sampling.logit_bias = {{17, 100}};
  EXPECT_EQ(ids(), std::vector<std::int32_t>(30, 17));
  request.sampling.logit_bias = {{plain[0], -100}};
  const std::vector<std::int32_t> without = ids();
  EXPECT_EQ(std::count(without.begin(), without.end(), plain[0]), 0);
  // Over generated tokens: one that is favoured by 100 is left once its penalties outweigh that.
  request.sampling.logit_bias = {{17, 3}, {18, 2.5f}};
  request.sampling.frequency_penalty = 2;
  request.sampling.presence_penalty = 2;
  const std::vector<std::int32_t> penalised = ids();
  EXPECT_LT(std::set<std::int32_t>(plain.begin(), plain.end()).size(), std::set<std::int32_t>(penalised.begin(), penalised.end()).size());
  // Over prompt and generated tokens.
  request.sampling = {.temperature = 0, .max_tokens = 1};
  request.prompt = {1, 2, 3};
  request.prompt.push_back(ids()[0]);
  const std::int32_t next = ids()[0];
  request.prompt.insert(request.prompt.begin(), next);
  const std::int32_t again = ids()[0];
  request.prompt.insert(request.prompt.begin(), again);  // its own answer now stands in the prompt
  request.sampling.repetition_penalty = 10;
  const std::vector<std::int32_t>& prompt = request.prompt;
  const std::int32_t other = ids()[0];
  EXPECT_EQ(std::count(prompt.begin(), prompt.end(), other), 0);
}

TEST(Sampling, RangesAreChecked) {
  Plant plant;
  Engine engine(plant.runtime, plant.weights);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const auto refused = [&](const std::string& word, const auto& change) {
    Request request{.prompt = {1}};
    change(request.sampling);
    try {
      engine.submit(request);
      ADD_FAILURE() << word << " was accepted";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::invalid_argument);
      EXPECT_NE(std::string(e.what()).find(word), std::string::npos) << e.what();
    }
  };
  for (float x : {-0.1f, 1.1f, nan}) refused("min_p", [&](auto& s) { s.min_p = x; });
  for (float x : {-2.1f, 2.1f, nan}) refused("presence_penalty", [&](auto& s) { s.presence_penalty = x; });
  for (float x : {-2.1f, 2.1f, nan}) refused("frequency_penalty", [&](auto& s) { s.frequency_penalty = x; });
  for (float x : {0.0f, -1.0f, 10.5f, nan}) refused("repetition_penalty", [&](auto& s) { s.repetition_penalty = x; });
  for (std::int32_t x : {-1, 21}) refused("top_logprobs", [&](auto& s) { s.top_logprobs = x; });
  for (float x : {-101.0f, 101.0f, nan}) refused("logit_bias of token 3", [&](auto& s) { s.logit_bias = {{3, x}}; });
  for (std::int32_t t : {-1, 1 << 20}) refused("logit_bias names token", [&](auto& s) { s.logit_bias = {{t, 1}}; });
  refused("twice", [&](auto& s) { s.logit_bias = {{3, 1}, {3, 2}}; });
  refused("logit_bias has 1025", [&](auto& s) { s.logit_bias.resize(1025); });
  EXPECT_TRUE(engine.idle());
}

}  // namespace
}  // namespace lockstep
