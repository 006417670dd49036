// Grammars and their masks: a mask equals what accept says, token by token; parts around schemas; ends; refusals.
// Validity over many schemas is checked by `jsonschema` in tests/oracle/test_schemas.py.
#include "text/grammar/token_grammar.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "base/error.h"
#include "base/philox.h"
#include "text/grammar/numbers.h"
#include "text/grammar/pattern.h"
#include "text/grammar/token_walk.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

// Every byte, many pieces of JSON, an end (the last), and one special token before it.
std::shared_ptr<const TokenBytes> tokens() {
  static const auto made = [] {
    std::vector<std::string> bytes;
    for (int b = 0; b < 256; ++b) bytes.emplace_back(1, static_cast<char>(b));
    RandomSequence draws(1, RandomStream::fuzz);
    const std::string alphabet = "{}[]\",: 0123456789abctruefalsn\\u.-eE\xc3\xa9";
    for (int i = 0; i < 1500; ++i) {
      std::string piece;
      for (std::uint32_t n = 2 + draws.below(4); n > 0; --n) piece += alphabet[draws.below(static_cast<std::uint32_t>(alphabet.size()))];
      bytes.push_back(piece);
    }
    for (const char* piece : {"\": \"", "\", \"", "{\"", "\"}", "\"]", "true", "null", "}}", "]]", "\\ud83d\\ude00", "<call>"}) bytes.emplace_back(piece);
    bytes.emplace_back();  // special
    bytes.emplace_back();  // the end
    const auto end = static_cast<std::int32_t>(bytes.size()) - 1;
    return std::make_shared<const TokenBytes>(std::move(bytes), std::vector<std::int32_t>{end});
  }();
  return made;
}
std::int32_t end_token() { return tokens()->size() - 1; }
std::int32_t special_token() { return tokens()->size() - 2; }

std::vector<std::uint32_t> mask_of(GrammarMatcher& m) {
  std::vector<std::uint32_t> words(tokens()->words(), 0);
  m.allowed(words);
  return words;
}
bool stands(const std::vector<std::uint32_t>& words, std::int32_t t) { return words[static_cast<std::size_t>(t / 32)] >> t % 32 & 1; }

bool holds(const std::shared_ptr<const TokenGrammar>& grammar, std::string_view text) {
  GrammarMatcher m(grammar);
  return m.accept_bytes(text) && m.complete();
}
bool holds(const std::string& schema, std::string_view text) { return holds(TokenGrammar::from_schema(Json::parse(schema), tokens()), text); }

const char* const kSchemas[] = {
    R"({"type":"object"})",
    R"({"type":"string","minLength":1,"maxLength":5})",
    R"({"type":"object","properties":{"a":{"type":"integer","minimum":-5,"maximum":300},"ab":{"type":"string","pattern":"^x+$"}},"required":["ab"]})",
    R"({"type":"array","items":{"anyOf":[{"type":"number"},{"type":"string"},{"enum":[{"a":[1,"é"]},null]}]},"minItems":1,"maxItems":3})",
    R"({"$defs":{"t":{"type":"object","properties":{"l":{"$ref":"#/$defs/t"},"v":{"type":"boolean"}},"required":["v"],"additionalProperties":false}},
      "$ref":"#/$defs/t"})",
    R"({"anyOf":[{"type":"object","properties":{"k":{"const":"a"},"x":{"type":"null"}},"required":["k"]},
      {"type":"object","properties":{"k":{"const":"ab"},"y":{"type":"number","maximum":2.5}},"required":["k"],"additionalProperties":false}]})",
};

// What is cached, walked and put together is what stepping over each token's bytes gives.
TEST(TokenGrammar, MasksAreWhatIsAccepted) {
  RandomSequence draws(2, RandomStream::fuzz);
  for (const char* schema : kSchemas) {
    const auto grammar = TokenGrammar::from_schema(Json::parse(schema), tokens(), {.max_depth = 6});
    int steps = 0;
    for (int walk = 0; walk < 6; ++walk) {
      GrammarMatcher m(grammar);
      for (int step = 0; step < 25 && !m.ended(); ++step, ++steps) {
        const std::vector<std::uint32_t> words = mask_of(m);
        std::vector<std::int32_t> allowed;
        for (std::int32_t t = 0; t < tokens()->size(); ++t) {
          GrammarMatcher copy(m);
          ASSERT_EQ(copy.accept(t), stands(words, t)) << schema << ": token " << t << " '" << tokens()->bytes(t) << "' at step " << step;
          if (stands(words, t)) allowed.push_back(t);
        }
        ASSERT_FALSE(allowed.empty()) << schema;
        ASSERT_EQ(stands(words, end_token()), m.complete());
        ASSERT_FALSE(stands(words, special_token()));
        ASSERT_TRUE(m.accept(allowed[draws.below(static_cast<std::uint32_t>(allowed.size()))]));
      }
    }
    EXPECT_GT(steps, 6);
  }
}

TEST(TokenGrammar, Strings) {
  const char* any = R"({"type":"string"})";
  for (const char* text : {R"("")", R"("a\"\\\/\b\f\n\r\t")", R"("é€😀")", R"("\u00e9\uD83D\ude00")", R"("\ud7ff\ue000")"})
    EXPECT_TRUE(holds(any, text)) << text;
  for (const char* text : {R"("\ud83d")", R"("\udc00")", R"("\ud83d\u0041")", R"("\x41")", "\"\n\"", "\"\x80\"", "\"\xc0\xaf\"", "\"\xed\xa0\x80\"",
                           "\"\xf5\x80\x80\x80\"", R"("a)", "a", "\"\xc3\""})
    EXPECT_FALSE(holds(any, text)) << text;
  const char* two = R"({"type":"string","minLength":2,"maxLength":2})";
  for (const char* text : {R"("ab")", R"("é😀")", R"("\ud83d\ude00\n")"}) EXPECT_TRUE(holds(two, text)) << text;
  for (const char* text : {R"("a")", R"("abc")", R"("😀")", R"("\ud83d\ude00")"}) EXPECT_FALSE(holds(two, text)) << text;
}

TEST(TokenGrammar, ObjectsAndArrays) {
  const char* object = R"({"type":"object","properties":{"a":{},"b":{"type":"null"},"c":false},"required":["b"],"additionalProperties":{"type":"boolean"}})";
  for (const char* text : {R"({"a":1,"b":null})", R"({"b":null})", R"({"a": {"x": [1, 2]}, "b": null, "z": true})", R"({"b":null,"aa":true,"":false})"})
    EXPECT_TRUE(holds(object, text)) << text;
  for (const char* text : {R"({})", R"({"b":null,"a":1})", R"({"b":null,"b":true})", R"({"b":null,"c":true})", R"({"b":null,"z":1})",
                           R"({"b":null,"\u0061":true})", R"({"b":null,})", R"({ "b":null})", R"({"b":  null})", R"([])"})
    EXPECT_FALSE(holds(object, text)) << text;
  const char* array = R"({"type":"array","prefixItems":[{"type":"integer"}],"items":{"type":"string"},"minItems":2,"maxItems":3})";
  for (const char* text : {R"([1,"a"])", R"([1, "a", "b"])"}) EXPECT_TRUE(holds(array, text)) << text;
  for (const char* text : {R"([])", R"([1])", R"(["a",1])", R"([1,"a","b","c"])", R"([1,"a",])"}) EXPECT_FALSE(holds(array, text)) << text;
  EXPECT_TRUE(holds(R"({"type":"string","nullable":true})", "null"));
}

TEST(TokenGrammar, TextAroundSchemas) {
  const GrammarPart call =
      GrammarPart::sequence({GrammarPart::literal("<call>{\"name\": \"f\", \"arguments\": "),
                             GrammarPart::schema(Json::parse(R"({"type":"object","properties":{"x":{"type":"integer"}},"additionalProperties":false})")),
                             GrammarPart::literal("}</call>")});
  const auto grammar = TokenGrammar::from_part(
      GrammarPart::alternatives({GrammarPart::repeat(call, 1, 2), GrammarPart::sequence({GrammarPart::token(special_token()), GrammarPart::json_object()})}),
      tokens());
  EXPECT_TRUE(holds(grammar, R"(<call>{"name": "f", "arguments": {"x":1}}</call>)"));
  EXPECT_TRUE(holds(grammar, R"(<call>{"name": "f", "arguments": {"x":1}}</call><call>{"name": "f", "arguments": {}}</call>)"));
  EXPECT_FALSE(holds(grammar, R"({"x":1})"));
  GrammarMatcher m(grammar);
  EXPECT_TRUE(stands(mask_of(m), special_token()));
  GrammarMatcher copy(m);
  EXPECT_TRUE(m.accept(special_token()));
  EXPECT_FALSE(stands(mask_of(m), special_token()));
  EXPECT_TRUE(m.accept_bytes("{\"a\":[]}"));
  EXPECT_TRUE(m.accept(end_token()));
  EXPECT_TRUE(m.ended());
  EXPECT_FALSE(m.accept(end_token()));
  for (std::uint32_t word : mask_of(m)) EXPECT_EQ(word, 0u);
  EXPECT_FALSE(copy.accept(end_token()));                                               // a copy goes its own way
  EXPECT_TRUE(holds(TokenGrammar::from_part(GrammarPart::literal(""), tokens()), ""));  // the whole text may be empty
  EXPECT_THROW(TokenGrammar::from_part(GrammarPart::token(end_token()), tokens()), Error);
}

TEST(TokenGrammar, OnlyTheEndWhereNothingMoreFits) {
  const auto grammar = TokenGrammar::from_schema(Json::parse(R"({"const":[1]})"), tokens());
  GrammarMatcher m(grammar);
  ASSERT_TRUE(m.accept_bytes("[1]"));
  const std::vector<std::uint32_t> words = mask_of(m);
  for (std::int32_t t = 0; t < tokens()->size(); ++t) EXPECT_EQ(stands(words, t), t == end_token()) << t;
  // A model's vocabulary may be smaller or larger than the tokenizer's.
  std::vector<std::uint32_t> few(3, 0), many(tokens()->words() + 5, 0);
  m.allowed(few);
  m.allowed(many);
  EXPECT_EQ(few, std::vector<std::uint32_t>(3, 0));
  EXPECT_TRUE(stands(many, end_token()));
}

TEST(TokenGrammar, AnyThread) {
  const auto grammar = TokenGrammar::from_schema(Json::parse(kSchemas[0]), tokens());
  std::atomic<int> bad = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      GrammarMatcher m(grammar);
      const std::string text = R"({"a": [1, {"b": "c"}], "d": null})";
      for (char c : text) {
        if (!stands(mask_of(m), static_cast<unsigned char>(c)) || !m.accept_bytes(std::string_view(&c, 1))) ++bad;
      }
      if (!m.complete()) ++bad;
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(bad, 0);
}

TEST(SchemaNumbers, IntegersInARange) {
  RandomSequence draws(3, RandomStream::fuzz);
  for (int round = 0; round < 60; ++round) {
    IntegerRange range;
    const auto any = [&] { return static_cast<std::int64_t>(draws.below(2500)) - 1250; };
    if (draws.below(3)) range.low = any();
    if (draws.below(3)) range.high = any();
    if (draws.below(2)) range.multiple = 1 + draws.below(12);
    SchemaWork work;
    const TextDfa dfa = integer_dfa(range, work);
    for (std::int64_t x = -1400; x <= 1400; ++x) {
      const bool inside = (!range.low || x >= *range.low) && (!range.high || x <= *range.high) && x % range.multiple == 0;
      ASSERT_EQ(dfa.accepts_text(std::to_string(x)), inside)
          << x << " in " << range.low.value_or(-9999) << " .. " << range.high.value_or(9999) << " by " << range.multiple;
    }
    for (const char* text : {"", "-", "-0", "00", "01", "1.0", "1e1", "+1"}) ASSERT_FALSE(dfa.accepts_text(text)) << text;
  }
}

TEST(SchemaNumbers, NumbersInARange) {
  RandomSequence draws(4, RandomStream::fuzz);
  const auto decimal = [&] {
    const std::int64_t thousandths = static_cast<std::int64_t>(draws.below(draws.below(2) ? 300000 : 30)) - (draws.below(2) ? 15 : 150000);
    return static_cast<double>(thousandths) / (draws.below(2) ? 1000 : 1);
  };
  int inside = 0;
  for (int round = 0; round < 80; ++round) {
    std::optional<NumberBound> low, high;
    if (draws.below(3)) low = NumberBound{decimal(), draws.below(2) == 0};
    if (draws.below(3)) high = NumberBound{decimal(), draws.below(2) == 0};
    if (!low && !high) low = NumberBound{0, false};
    SchemaWork work;
    const TextDfa dfa = number_dfa(low, high, work);
    for (int i = 0; i < 300; ++i) {
      double x = decimal();
      if (i < 4 && low) x = low->value.get<double>();
      else if (i < 8 && high) x = high->value.get<double>();
      std::string text = Json(x).dump();
      if (text.find('e') != std::string::npos) continue;
      if (draws.below(2) && text.ends_with(".0")) text.resize(text.size() - 2);
      else if (draws.below(2)) text += text.find('.') == std::string::npos ? ".000" : "00";
      const auto ok = [&](const std::optional<NumberBound>& b, double sign) {
        const double d = b ? sign * (x - b->value.get<double>()) : 1;
        return d > 0 || (d == 0 && !b->exclusive);
      };
      const bool want = ok(low, 1) && ok(high, -1);
      ASSERT_EQ(dfa.accepts_text(text), want) << text << " from " << (low ? low->value.dump() : "-") << " to " << (high ? high->value.dump() : "-");
      inside += want;
    }
  }
  EXPECT_GT(inside, 1000);
  SchemaWork work;
  const TextDfa any = number_dfa(std::nullopt, std::nullopt, work);
  for (const char* text : {"0", "-0", "-0.5", "1e5", "1.25E-300", "9.9e307", "123456789012345678"}) EXPECT_TRUE(any.accepts_text(text)) << text;
  for (const char* text : {"", "-", ".5", "1.", "1e", "1e308", "9e999", "12e1", "01", "NaN", "1234567890123456789"})
    EXPECT_FALSE(any.accepts_text(text)) << text;
}

TEST(SchemaPatterns, MatchAndRefuse) {
  const auto automaton = [](const char* pattern) {
    SchemaWork work;
    return pattern_dfa(pattern, work);
  };
  const auto matches = [&](const char* pattern, const char* text) { return automaton(pattern).accepts_text(text); };
  EXPECT_TRUE(matches("b", "abc"));
  EXPECT_FALSE(matches("^b", "abc"));
  EXPECT_TRUE(matches("^a|c$", "xc"));
  EXPECT_TRUE(matches("^(?:a|(?<n>b))+?$", "abba"));
  EXPECT_FALSE(matches("^[^a-c]{2,3}$", "xa"));
  EXPECT_TRUE(matches("^[^a-c]{2,3}$", "xé"));
  EXPECT_FALSE(matches("^\\S$", "\xc2\xa0"));
  EXPECT_FALSE(matches("^.$", "\n"));
  EXPECT_TRUE(matches("^\\u{1F600}\\ud83d\\ude00$", "😀😀"));
  EXPECT_TRUE(matches("", ""));
  EXPECT_FALSE(matches("^a$", "a\n"));
  for (const char* pattern : {"(", ")", "[", "a**", "*a", "[b-a]", "a{3,2}", "\\"}) {
    try {
      automaton(pattern);
      ADD_FAILURE() << pattern;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::invalid_argument) << pattern;
    }
  }
  for (const char* pattern : {"(?=a)", "(?!a)", "(?<=a)", "(a)\\1", "\\bx", "\\p{L}", "(?i)a", "[]a]", "a{,3}", "\\Ax", "[[:alpha:]]", "a++"}) {
    try {
      automaton(pattern);
      ADD_FAILURE() << pattern;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::unsupported) << pattern;
    }
  }
  for (const char* pattern : {"(a|b)*a(a|b){30}", "((a{1,100}){1,100}){1,100}", "a{100000}"}) {
    try {
      automaton(pattern);
      ADD_FAILURE() << pattern;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::resource_exhausted) << pattern;
    }
  }
}

TEST(TokenBytes, Tree) {
  const TokenBytes t({"a", "ab", "", "b", "a", "abc", "x"}, {6});
  EXPECT_EQ(t.longest(), 3u);
  EXPECT_TRUE(t.is_end(6));
  EXPECT_TRUE(t.bytes(6).empty());
  ASSERT_EQ(t.nodes().size(), 6u);  // root, a, ab, abc, b, and the end
  EXPECT_EQ(t.nodes()[1].end, 4u);
  EXPECT_EQ(t.nodes()[1].tokens, 0u);
  EXPECT_EQ(t.nodes()[2].tokens, 2u);
  EXPECT_EQ(t.order(), (std::vector<std::int32_t>{0, 4, 1, 5, 3}));
  EXPECT_THROW(TokenBytes({"a"}, {}), Error);
  EXPECT_THROW(TokenBytes({"a"}, {1}), Error);
}

// Values that are equal are one, whatever their spelling, and many of them take time in proportion.
TEST(TokenGrammar, ManyValuesAndEqualOnes) {
  EXPECT_TRUE(holds(R"({"enum":[1,{"a":1,"b":[2.0]}],"allOf":[{"enum":[1.0,{"b":[2],"a":1.0}]}]})", "1.0"));
  EXPECT_TRUE(holds(R"({"enum":[1,{"a":1,"b":[2.0]}],"allOf":[{"enum":[1.0,{"b":[2],"a":1.0}]}]})", R"({"b": [2], "a": 1.0})"));
  EXPECT_FALSE(holds(R"({"enum":[1,"1",true,null],"const":"1"})", "1"));
  EXPECT_TRUE(holds(R"({"enum":[18446744073709551615,1.8446744073709552e19,-0.0]})", "18446744073709551615"));
  Json schema = {{"enum", Json::array()}, {"allOf", {{{"enum", Json::array()}}}}};
  for (int i = 0; i < 15000; ++i) {
    schema["enum"].push_back(i);
    schema["allOf"][0]["enum"].push_back(15000 - i);
  }
  EXPECT_TRUE(holds(TokenGrammar::from_schema(schema, tokens()), "14999"));
  EXPECT_FALSE(holds(TokenGrammar::from_schema(schema, tokens()), "0"));
}

// Each pattern is within the limits of one automaton, and so is each schema of a grammar of several.
TEST(TokenGrammar, TheWorkOfAllPatternsIsBounded) {
  const auto pattern = [](int i) -> Json { return {{"type", "string"}, {"maxLength", 0}, {"pattern", fmt::format("^(.*a{}.{{13}})?$", i)}}; };
  Json patterns = {{"anyOf", Json::array()}};
  std::vector<GrammarPart> schemas;
  for (int i = 0; i < 200; ++i) {
    patterns["anyOf"].push_back(pattern(i));
    schemas.push_back(GrammarPart::schema(pattern(i)));
  }
  EXPECT_TRUE(holds(TokenGrammar::from_schema(patterns["anyOf"][0], tokens()), "\"\""));
  for (const GrammarPart& part : {GrammarPart::schema(patterns), GrammarPart::alternatives(schemas)}) {
    try {
      TokenGrammar::from_part(part, tokens());
      ADD_FAILURE();
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::resource_exhausted);
      EXPECT_NE(std::string(e.what()).find("steps of work"), std::string::npos) << e.what();
    }
  }
}

TEST(TokenGrammar, ASchemaNestedTooDeepIsRefused) {
  Json schema = Json::object();
  Json* inner = &schema;
  for (int i = 0; i < 2000; ++i) inner = &((*inner)["items"] = Json::object());
  EXPECT_THROW(TokenGrammar::from_schema(schema, tokens()), Error);
}
// Masks of all grammars over the same tokens have one size; those that went are found again, the same.
TEST(TokenGrammar, MasksHaveASize) {
  std::vector<std::string> bytes;
  for (std::int32_t id = 0; id < tokens()->size(); ++id) bytes.push_back(tokens()->bytes(id));
  constexpr std::size_t kMost = 8 << 10;
  const auto few = std::make_shared<const TokenBytes>(bytes, std::vector<std::int32_t>{end_token()}, kMost);
  std::vector<std::shared_ptr<const TokenGrammar>> all;
  for (int g = 0; g < 6; ++g) {
    const Json schema = {
        {"type", "object"},
        {"properties", {{fmt::format("a{}", g), {{"type", "string"}, {"maxLength", 40}}}, {"b", {{"type", "array"}, {"items", {{"type", "integer"}}}}}}}};
    all.push_back(TokenGrammar::from_schema(schema, few));
    GrammarMatcher with_few(all.back()), with_many(TokenGrammar::from_schema(schema, tokens()));
    RandomSequence draws(static_cast<std::uint64_t>(g), RandomStream::fuzz);
    for (int step = 0; step < 200 && !with_few.ended(); ++step) {
      const std::vector<std::uint32_t> mask = mask_of(with_many);
      ASSERT_EQ(mask_of(with_few), mask);
      ASSERT_LE(few->masks().bytes(), kMost);
      std::int32_t token = static_cast<std::int32_t>(draws.below(static_cast<std::uint32_t>(tokens()->size())));
      while (!stands(mask, token)) token = (token + 1) % tokens()->size();
      ASSERT_TRUE(with_few.accept(token) && with_many.accept(token));
    }
  }
  EXPECT_GT(few->masks().bytes(), kMost / 4);
}

}  // namespace
}  // namespace lockstep
