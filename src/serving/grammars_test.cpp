// Grammars beside a service: compiled once, kept a while, and kept by the engine to the last token.
#include "serving/grammars.h"

#include <gtest/gtest.h>

#include <future>
#include <set>

#include "base/client_work.h"
#include "base/error.h"
#include "serving/loading.h"

namespace lockstep {
namespace {

using Schema = nlohmann::ordered_json;

class GrammarsTest : public testing::Test {
 protected:
  static const OpenedModel& opened() {
    static const OpenedModel model = open_model({.model = LOCKSTEP_SOURCE_DIR "/models/countdown-glm", .threads = 2});
    return model;
  }
  GenerationService service_{serving_model(opened()), {}};
  Grammars grammars_{opened().tokenizer, service_.model().end_tokens()};

  Generation answer(const Schema& schema, std::uint64_t seed, float temperature = 1.5f) {
    Request request{.prompt = opened().tokenizer->encode("3 7 12=48:", true),
                    .sampling = {.temperature = temperature, .seed = seed, .max_tokens = 24, .stop_tokens = service_.model().end_tokens()}};
    request.sampling.top_logprobs = 3;
    request.sampling.constraint = make_constraint(grammars_.of_schema(schema));
    std::promise<Generation> done;
    service_.generate(std::move(request), {}, [&](Generation&& g) { done.set_value(std::move(g)); });
    return done.get_future().get();
  }
};

TEST_F(GrammarsTest, AnswersAreValid) {
  std::set<std::int64_t> values;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const Generation g = answer({{"type", "integer"}, {"minimum", 17}, {"maximum", 345}}, seed);
    ASSERT_EQ(g.finish, FinishReason::stop) << g.error;
    std::vector<std::int32_t> ids;
    for (const GeneratedToken& t : g.tokens) {
      ids.push_back(t.id);
      EXPECT_LE(t.raw_logprob, 0);
      EXPECT_FALSE(t.top.empty());
    }
    const std::int64_t value = std::stoll(opened().tokenizer->decode(ids, true));
    EXPECT_GE(value, 17);
    EXPECT_LE(value, 345);
    values.insert(value);
  }
  EXPECT_GT(values.size(), 10u);
}

TEST_F(GrammarsTest, WhatTheTokensCannotSpellEndsWithAnError) {
  // A vocabulary of two texts, neither of which begins a string.
  const auto tokens = std::make_shared<const TokenBytes>(std::vector<std::string>{"1", "2", ""}, std::vector<std::int32_t>{2});
  Request request{.prompt = {3, 4}, .sampling = {.max_tokens = 24}};
  request.sampling.constraint = make_constraint(TokenGrammar::from_schema({{"type", "string"}}, tokens));
  std::promise<Generation> done;
  service_.generate(std::move(request), {}, [&](Generation&& g) { done.set_value(std::move(g)); });
  const Generation g = done.get_future().get();
  EXPECT_EQ(g.finish, FinishReason::error);
  EXPECT_NE(g.error.find("allows no token"), std::string::npos) << g.error;
}

// Who sends what is refused again and again is told so without the work.
TEST_F(GrammarsTest, ARefusalIsKept) {
  Schema schema = {{"anyOf", Schema::array()}};
  for (int i = 0; i < 200; ++i) schema["anyOf"].push_back({{"type", "string"}, {"maxLength", 0}, {"pattern", fmt::format("^(.*a{}.{{13}})?$", i)}});
  const auto refused = [&] {
    const auto began = std::chrono::steady_clock::now();
    try {
      grammars_.of_schema(schema);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::resource_exhausted);
      return std::pair(std::string(e.what()), std::chrono::steady_clock::now() - began);
    }
    ADD_FAILURE();
    return std::pair(std::string(), std::chrono::steady_clock::now() - began);
  };
  const auto first = refused(), again = refused();
  EXPECT_EQ(first.first, again.first);
  EXPECT_LT(20 * again.second, first.second);
}

// Megabytes of states: texts that have nothing in common.
Schema long_schema(int seed, int texts = 1500) {
  Schema schema = {{"enum", Schema::array()}};
  for (int i = 0; i < texts; ++i)
    schema["enum"].push_back(
        fmt::format("{:08x}{:08x}{:04d}", (seed + 1) * 2654435761u + static_cast<unsigned>(i) * 40503u, static_cast<unsigned>(i) * 2246822519u, seed));
  return schema;
}

TEST_F(GrammarsTest, WhatIsKeptHasASize) {
  const std::size_t one = grammars_.of_schema(long_schema(0))->bytes();
  EXPECT_GT(one, std::size_t{1} << 20);
  Grammars small(opened().tokenizer, service_.model().end_tokens(), 3 * one);
  std::weak_ptr<const TokenGrammar> first = small.of_schema(long_schema(0));
  EXPECT_FALSE(first.expired());
  for (int seed = 1; seed < 8; ++seed) {
    small.of_schema(long_schema(seed));
    EXPECT_LE(small.kept_bytes(), 3 * one);
  }
  EXPECT_TRUE(first.expired());
}

// A grammar is its client's memory from the first state to the last request that has it.
TEST_F(GrammarsTest, MemoryIsCountedForWhoAsked) {
  struct NoRoom : Error {
    using Error::Error;
  };
  struct Account : MemoryAccount, std::enable_shared_from_this<Account> {  // as long as a grammar that is kept
    std::size_t taken = 0, kept = 0, most = SIZE_MAX;
    void take(std::size_t bytes) override {
      if ((taken += bytes) > most) throw NoRoom(ErrorCode::resource_exhausted, "no room");
    }
    std::shared_ptr<void> split(std::size_t bytes) override {
      kept += bytes;
      return std::shared_ptr<void>(this, [account = shared_from_this(), bytes](void*) { account->kept -= bytes; });
    }
  };
  const auto account = std::make_shared<Account>();
  const ClientWork scope(nullptr, account);
  account->most = 1 << 20;
  EXPECT_THROW(grammars_.of_schema(long_schema(0)), NoRoom);
  EXPECT_LT(account->taken, account->most + (1 << 20));  // refused on the way
  account->most = SIZE_MAX;
  std::shared_ptr<const TokenGrammar> grammar = grammars_.of_schema(long_schema(0));  // of the schema that says nothing
  EXPECT_EQ(account->kept, grammar->bytes());
  EXPECT_GE(account->taken, grammar->bytes());
  for (std::size_t i = 0; i < Grammars::kKept; ++i) grammars_.of_schema({{"type", "string"}, {"maxLength", i}});
  const std::size_t others = account->kept - grammar->bytes();
  grammar.reset();
  EXPECT_EQ(account->kept, others);
}

TEST_F(GrammarsTest, CompiledOnceAndKeptAWhile) {
  const Schema schema = {{"type", "string"}};
  const auto first = grammars_.of_schema(schema);
  EXPECT_EQ(grammars_.of_schema(schema), first);
  EXPECT_NE(grammars_.of_schema(schema, {.max_depth = 3}), first);
  EXPECT_NE(grammars_.of_part(GrammarPart::sequence({GrammarPart::literal("x"), GrammarPart::schema(schema)})), first);
  for (std::size_t i = 0; i < Grammars::kKept; ++i) grammars_.of_schema({{"type", "string"}, {"maxLength", i}});
  EXPECT_NE(grammars_.of_schema(schema), first);
  EXPECT_THROW(grammars_.of_schema({{"type", "strin"}}), Error);
  Grammars none(nullptr, {1});
  EXPECT_THROW(none.json_object(), Error);
}

}  // namespace
}  // namespace lockstep
