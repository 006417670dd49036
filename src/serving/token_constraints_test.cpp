#include "serving/token_constraints.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>

#include "serving/grammars.h"
#include "serving/loading.h"

namespace lockstep {
namespace {

// One token alone.
class Only : public TokenConstraint {
 public:
  explicit Only(std::int32_t token) : token_(token) {}
  void allowed(std::span<std::uint32_t> words) override { words[static_cast<std::size_t>(token_ / 32)] |= std::uint32_t{1} << (token_ % 32); }
  void accept(std::int32_t token) override { accepted.push_back(token); }
  void truncate(std::int64_t count) override { accepted.resize(static_cast<std::size_t>(count)); }
  std::vector<std::int32_t> accepted;

 private:
  std::int32_t token_;
};

std::vector<std::int32_t> allowed_of(TokenConstraint& constraint, std::int64_t vocabulary) {
  std::vector<std::uint32_t> words(static_cast<std::size_t>((vocabulary + 31) / 32));
  constraint.allowed(words);
  std::vector<std::int32_t> tokens;
  for (std::int32_t t = 0; t < static_cast<std::int32_t>(words.size()) * 32; ++t)
    if (words[static_cast<std::size_t>(t / 32)] >> (t % 32) & 1) tokens.push_back(t);
  return tokens;
}

TEST(MinTokens, HoldsTheEndBack) {
  MinTokens free(nullptr, {1, 39}, 2, 40);
  for (int i = 0; i < 2; ++i) {
    const std::vector<std::int32_t> tokens = allowed_of(free, 40);
    EXPECT_EQ(tokens.size(), 38u);  // nothing above the vocabulary either
    EXPECT_EQ(std::count(tokens.begin(), tokens.end(), 39), 0);
    free.accept(5);
  }
  EXPECT_EQ(allowed_of(free, 40).size(), 40u);
}

TEST(MinTokens, LeavesTheEndWhereNothingElseMayCome) {
  const auto inner = std::make_shared<Only>(39);
  MinTokens held(inner, {39}, 2, 40);
  EXPECT_EQ(allowed_of(held, 40), std::vector<std::int32_t>{39});
  held.accept(39);
  EXPECT_EQ(inner->accepted, std::vector<std::int32_t>{39});
}

TEST(AfterReasoning, WaitsForTheMarkHoweverTokensCutIt) {
  const auto tokenizer = load_tokenizer(LOCKSTEP_SOURCE_DIR "/models/countdown-glm");
  for (const std::string text : {"hm </think>", "</think>", "a < /think></thin</think>", "</</think>"}) {
    const auto inner = std::make_shared<Only>(7);
    AfterReasoning constraint(inner, *tokenizer, "</think>", {102}, 512);
    for (const std::int32_t id : tokenizer->encode(text, false)) {
      const std::vector<std::int32_t> tokens = allowed_of(constraint, 512);
      EXPECT_EQ(tokens.size(), 511u) << text;  // all but the end
      constraint.accept(id);
    }
    EXPECT_EQ(allowed_of(constraint, 512), std::vector<std::int32_t>{7}) << text;
    constraint.accept(7);
    EXPECT_EQ(inner->accepted, std::vector<std::int32_t>{7});
  }
}

// Any constraint, after some of what it accepted was taken back, allows what one that never accepted it does.
TEST(TokenConstraints, TokensThatAreTakenBackLeaveNothing) {
  const auto tokenizer = load_tokenizer(LOCKSTEP_SOURCE_DIR "/models/countdown-glm");
  const std::int64_t vocabulary = tokenizer->vocab_size();
  const std::vector<std::int32_t> ends{102};
  const auto grammar = Grammars(tokenizer, ends).of_schema({{"type", "array"}, {"items", {{"type", "integer"}}}, {"maxItems", 6}});
  const std::vector<std::int32_t> mark = tokenizer->encode("</think>", false);
  const auto make = [&](int kind) -> std::shared_ptr<TokenConstraint> {
    auto inner = make_constraint(grammar);
    if (kind == 0) return inner;
    if (kind == 1) return std::make_shared<MinTokens>(inner, ends, 6, vocabulary);
    return std::make_shared<AfterReasoning>(std::make_shared<MinTokens>(inner, ends, 3, vocabulary), *tokenizer, "</think>", ends, vocabulary);
  };
  const bool same = rc::check([&] {
    const int kind = *rc::gen::inRange(0, 3);
    const auto constraint = make(kind);
    std::vector<std::int32_t> said;
    std::size_t settled = 0;
    const auto words = *rc::gen::container<std::vector<std::uint32_t>>(rc::gen::arbitrary<std::uint32_t>());
    for (const std::uint32_t word : words) {
      if (word % 8 == 0) {
        constraint->settle();
        settled = said.size();
      } else if (word % 4 == 1 && said.size() > settled) {
        said.resize(settled + (word >> 8) % (said.size() - settled + 1));
        constraint->truncate(static_cast<std::int64_t>(said.size()));
      } else {
        const std::vector<std::int32_t> may = allowed_of(*constraint, vocabulary);
        if (may.empty()) continue;  // it has ended
        // In reasoning, often the next part of its end.
        std::int32_t token = may[(word >> 8) % may.size()];
        if (kind == 2 && word % 3 != 0) token = mark[said.size() % mark.size()];
        if (std::find(may.begin(), may.end(), token) == may.end()) token = may.front();
        constraint->accept(token);
        said.push_back(token);
      }
      const auto fresh = make(kind);
      for (const std::int32_t token : said) fresh->accept(token);
      RC_ASSERT(allowed_of(*constraint, vocabulary) == allowed_of(*fresh, vocabulary));
    }
  });
  EXPECT_TRUE(same);
}

}  // namespace
}  // namespace lockstep
