// Rejection sampling by itself: what is said has the model's law, by chi-square over many positions, whatever the guesses are drawn with; guesses are taken
// as often as the law says. Control: guesses and acceptance that share a stream.
#include "engine/drafts/verify.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "base/philox.h"

namespace lockstep {
namespace {

// 10^6 with LOCKSTEP_SLOW_TESTS=1.
std::int64_t verified_draws() {
  const char* slow = std::getenv("LOCKSTEP_SLOW_TESTS");
  return slow && *slow == '1' ? 1'000'000 : 100'000;
}

TokenLaw law_of_logits(std::uint64_t seed, std::int64_t vocabulary, float temperature, const KeptTokens& kept = {}) {
  RandomSequence random(seed, RandomStream::fuzz);
  std::vector<float> logits;
  for (std::int64_t v = 0; v < vocabulary; ++v) logits.push_back(static_cast<float>(4 * random.uniform() - 2));
  return token_law(logits, temperature, kept);
}

double uniform_of(const SamplingParameters& s, std::int64_t position, RandomStream stream) {
  const Philox::Words words =
      Philox::generate(s.seed, {0, static_cast<std::uint32_t>(position), static_cast<std::uint32_t>(s.sample_index), static_cast<std::uint32_t>(stream)});
  return static_cast<double>((std::uint64_t{words[1]} << 32 | words[0]) >> 11) * 0x1p-53;
}

// By inversion, so that a draw is a function of one number.
std::int32_t drawn_by(const TokenLaw& law, double u) {
  std::size_t i = 0;
  for (double below = law.chances[0]; i + 1 < law.chances.size() && u >= below; below += law.chances[i]) ++i;
  return law.ids.empty() ? static_cast<std::int32_t>(i) : law.ids[i];
}

struct VerifiedSaid {
  double chi_square = 0, standard = 0;  // the latter: in standard deviations above its mean
  std::int64_t taken = 0, draws = 0;
};

// `shared`: acceptance draws the number that the guess was drawn with.
VerifiedSaid say(const TokenLaw& p, const TokenLaw& q, std::int64_t vocabulary, bool shared) {
  VerifiedSaid said{.draws = verified_draws()};
  std::vector<std::int64_t> count(static_cast<std::size_t>(vocabulary), 0);
  for (std::int64_t i = 0; i < said.draws; ++i) {
    const SamplingParameters s{.seed = 77 + static_cast<std::uint64_t>(i / 1000), .sample_index = static_cast<std::int32_t>(i % 3)};
    const std::int64_t position = i % 1000;
    const double u = uniform_of(s, position, RandomStream::draft);
    const std::int32_t guess = drawn_by(q, u);
    const bool takes = takes_guess(p, guess, &q, shared ? u : acceptance_draw(s, position));
    const std::int32_t token = takes ? guess : residual_draw(p, guess, &q, s, position);
    EXPECT_TRUE(shared || token == verified(p, guess, &q, s, position));
    said.taken += takes;
    ++count[static_cast<std::size_t>(token)];
  }
  double freedom = -1;
  for (std::int32_t v = 0; v < vocabulary; ++v) {
    const double want = p.chance_of(v) * static_cast<double>(said.draws), got = static_cast<double>(count[static_cast<std::size_t>(v)]);
    if (want == 0) {
      EXPECT_EQ(got, 0) << "token " << v << " has no chance";
      continue;
    }
    said.chi_square += (got - want) * (got - want) / want;
    ++freedom;
  }
  said.standard = (said.chi_square - freedom) / std::sqrt(2 * freedom);
  return said;
}

double taken_by_law(const TokenLaw& p, const TokenLaw& q, std::int64_t vocabulary) {
  double sum = 0;
  for (std::int32_t v = 0; v < vocabulary; ++v) sum += std::min(p.chance_of(v), q.chance_of(v));
  return sum;
}

constexpr std::int64_t kVerifiedWords = 40;

TEST(Verify, WhatIsSaidHasTheModelsLaw) {
  const std::vector<std::int32_t> few{1, 2, 3, 5, 8, 13, 21, 34};
  const KeptTokens cut = KeptTokens::of(KeptTokens::Order::by_rank, few, kVerifiedWords);
  struct Case {
    const char* name;
    TokenLaw p, q;
  };
  const Case cases[] = {{"alike", law_of_logits(1, kVerifiedWords, 1), law_of_logits(2, kVerifiedWords, 1)},
                        {"sharp guesses", law_of_logits(1, kVerifiedWords, 1.5f), law_of_logits(2, kVerifiedWords, 0.3f)},
                        {"sharp model", law_of_logits(1, kVerifiedWords, 0.4f), law_of_logits(2, kVerifiedWords, 1)},
                        {"the model cuts", law_of_logits(1, kVerifiedWords, 1, cut), law_of_logits(2, kVerifiedWords, 1)},
                        {"guesses are cut", law_of_logits(1, kVerifiedWords, 1), law_of_logits(2, kVerifiedWords, 0.7f, cut)},
                        {"one law", law_of_logits(3, kVerifiedWords, 1), law_of_logits(3, kVerifiedWords, 1)}};
  for (const Case& c : cases) {
    const VerifiedSaid said = say(c.p, c.q, kVerifiedWords, false);
    EXPECT_LT(std::abs(said.standard), 5) << c.name << ": chi-square " << said.chi_square;
    const double want = std::min(1.0, taken_by_law(c.p, c.q, kVerifiedWords)), n = static_cast<double>(said.draws);
    EXPECT_NEAR(static_cast<double>(said.taken), want * n, 4 * std::sqrt(n * want * (1 - want)) + 1) << c.name;
  }
}

// Control: with one stream for guess and acceptance the same comparison fails by far.
TEST(Verify, ASharedStreamWouldBeSeen) {
  const TokenLaw p = law_of_logits(1, kVerifiedWords, 1), q = law_of_logits(2, kVerifiedWords, 1);
  EXPECT_GT(say(p, q, kVerifiedWords, true).standard, 100);
}

// A guess that was not drawn: taken with its chance under the model, else another token, with the model's law.
TEST(Verify, APointMassKeepsTheLaw) {
  const TokenLaw p = law_of_logits(1, kVerifiedWords, 1);
  for (const std::int32_t guess : {0, 7, 39}) {
    std::vector<std::int64_t> count(static_cast<std::size_t>(kVerifiedWords), 0);
    const std::int64_t draws = verified_draws();
    for (std::int64_t i = 0; i < draws; ++i) {
      const SamplingParameters s{.seed = static_cast<std::uint64_t>(i / 1000)};
      ++count[static_cast<std::size_t>(verified(p, guess, nullptr, s, i % 1000))];
    }
    double chi_square = 0;
    for (std::int32_t v = 0; v < kVerifiedWords; ++v) {
      const double want = p.chance_of(v) * static_cast<double>(draws), got = static_cast<double>(count[static_cast<std::size_t>(v)]);
      chi_square += (got - want) * (got - want) / want;
    }
    EXPECT_LT(std::abs(chi_square - (kVerifiedWords - 1)) / std::sqrt(2.0 * (kVerifiedWords - 1)), 5) << guess;
  }
}

TEST(Verify, WhatCannotStandIsNotTaken) {
  const std::vector<std::int32_t> few{2, 4};
  const TokenLaw p = law_of_logits(1, 8, 1, KeptTokens::of(KeptTokens::Order::by_id, few, 8)), q = law_of_logits(2, 8, 1);
  for (std::int64_t position = 0; position < 200; ++position)
    for (const TokenLaw* law : {&q, static_cast<const TokenLaw*>(nullptr)}) {
      const std::int32_t token = verified(p, 3, law, {.seed = 5}, position);
      EXPECT_TRUE(token == 2 || token == 4) << token;
    }
  const std::vector<std::int32_t> one{6};
  const TokenLaw only = law_of_logits(1, 8, 1, KeptTokens::of(KeptTokens::Order::by_id, one, 8));
  for (std::int64_t position = 0; position < 200; ++position) {
    EXPECT_EQ(verified(only, 6, nullptr, {.seed = 5}, position), 6);
    EXPECT_EQ(verified(only, 1, &q, {.seed = 5}, position), 6);
  }
}

}  // namespace
}  // namespace lockstep
