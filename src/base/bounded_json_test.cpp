#include "base/bounded_json.h"

#include <gtest/gtest.h>

#include "base/client_work.h"
#include "base/error.h"
#include "base/growth_test_tools.h"
#include "base/philox.h"
#include "base/test_seed.h"

namespace lockstep {
namespace {

std::string refusal(std::string_view text, const JsonLimits& limits = {}) {
  try {
    read_json(text, limits);
    return {};
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::invalid_argument);
    return e.what();
  }
}
std::string nested(std::size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); }
std::string object_of(int keys) {
  std::string text = "{";
  for (int i = 0; i < keys; ++i) text += (i ? ",\"k" : "\"k") + std::to_string(i) + "\":1";
  return text + "}";
}

TEST(BoundedJsonTest, ReadsWhatIsWithin) {
  EXPECT_EQ(read_json(R"({"b":[1,{"a":null}],"a":"x"})").dump(), R"({"b":[1,{"a":null}],"a":"x"})");  // in the order written
  EXPECT_EQ(refusal(nested(64)), "");
  EXPECT_EQ(refusal(object_of(4000)), "");
  EXPECT_EQ(read_json("3"), 3);
}

TEST(BoundedJsonTest, RefusesDepthKeysNumbersAndNonsense) {
  EXPECT_EQ(refusal(nested(65)), "nests deeper than 64 levels");
  EXPECT_EQ(refusal(std::string(1000000, '[')), "nests deeper than 64 levels");
  EXPECT_EQ(refusal(object_of(4002)), "has too many keys, allowed are 4000 in one object");
  EXPECT_EQ(refusal("[" + object_of(5) + "," + object_of(5) + "]", {.key_comparisons = 19}), "has too many keys, allowed are 6 in one object");
  EXPECT_EQ(refusal("[" + object_of(5) + "," + object_of(5) + "]", {.key_comparisons = 20}), "");
  EXPECT_EQ(refusal("[1e999]"), "has a number that no double holds, in [0]");
  EXPECT_EQ(refusal("{\"a\":}"), "is not JSON: fault at byte 6 of 6, in a");
  EXPECT_EQ(refusal("\"\xff\""), "is not JSON: fault at byte 2 of 3");
  EXPECT_EQ(refusal(""), "is not JSON: fault at byte 1 of 0");
  EXPECT_EQ(read_json_or_null(nested(65)), nullptr);
  EXPECT_EQ(read_json_or_null("{"), nullptr);
}

// Python's json writes NaN and Infinity, and others a number beyond every double: the error says of which field.
TEST(BoundedJsonTest, NamesTheFieldAtFault) {
  EXPECT_EQ(refusal(R"({"adam":{"eps":1,"rate":1e400}})"), "has a number that no double holds, in adam.rate");
  EXPECT_EQ(refusal(R"({"adam":{"rate":1},"eps":NaN})"), "is not JSON: fault at byte 26 of 29, in eps; JSON has no NaN and no Infinity");
  EXPECT_EQ(refusal(R"({"a":[1,2,{"b":[3,-Infinity]}]})", {.compact_numbers = true}),
            "is not JSON: fault at byte 20 of 31, in a[2].b[1]; JSON has no NaN and no Infinity");
  EXPECT_EQ(refusal(R"({"a":[1,2,3,1e400]})", {.compact_numbers = true}), "has a number that no double holds, in a[3]");
  EXPECT_EQ(refusal(R"({"a\nb":x})"), "is not JSON: fault at byte 9 of 10, in a?b");
  EXPECT_EQ(refusal("{\"" + std::string(1000, 'k') + "\":x}"), "is not JSON: fault at byte 1005 of 1006, in " + std::string(40, 'k') + "...");
  std::string deep;
  for (int i = 0; i < 50; ++i) deep += R"({"deep":)";
  EXPECT_LT(refusal(deep).size(), 250u);
}

TEST(BoundedJsonTest, OfEqualKeysTheLastCountsAtTheFirstOnesPlace) {
  EXPECT_EQ(read_json(R"({"a":1,"b":2,"a":[3]})").dump(), R"({"a":[3],"b":2})");
  std::string many = object_of(40);  // looked up in another way
  many.back() = ',';
  EXPECT_EQ(read_json(many + R"("k3":"new","k39":null})").dump(), [&] {
    std::string wanted = object_of(40);
    wanted.replace(wanted.find("\"k3\":1"), 6, R"("k3":"new")");
    wanted.replace(wanted.find("\"k39\":1"), 7, R"("k39":null)");
    return wanted;
  }());
}

// What this program wrote down itself has no limits, and is on nobody's account.
TEST(BoundedJsonTest, ReadsItsOwnWithoutLimits) {
  struct Account : MemoryAccount {
    void take(std::size_t) override { fail(ErrorCode::resource_exhausted, "no room"); }
  };
  const ClientWork work(nullptr, std::make_shared<Account>());
  EXPECT_EQ(read_own_json(object_of(10'000)).size(), 10'000u);
  EXPECT_EQ(read_own_json(nested(1000)).dump(), nested(1000));
  EXPECT_THROW(read_own_json("{"), Error);
}

// Random values, as their library reads them and as we do, also when the text comes in pieces of any length.
TEST(BoundedJsonTest, ReadsWhatItsLibraryReads) {
  const std::uint64_t seed = test_seed();
  SCOPED_TRACE(seed);
  RandomSequence draws(seed, RandomStream::fuzz);
  const auto value = [&](const auto& self, int depth) -> nlohmann::ordered_json {
    switch (draws.below(depth > 4 ? 6 : 8)) {
      case 0:
        return nullptr;
      case 1:
        return draws.below(2) == 0;
      case 2:
        return static_cast<std::int64_t>(draws.below(1000)) - 500;
      case 3:
        return UINT64_MAX - draws.below(3);
      case 4:
        return static_cast<double>(draws.below(1000)) / 7;
      case 5:
        return std::string(draws.below(40), "ab\"\\\n\xc3"[draws.below(5)]);
      case 6: {
        nlohmann::ordered_json array = nlohmann::ordered_json::array();
        for (std::uint32_t n = draws.below(30); n > 0; --n) array.push_back(self(self, depth + 1));
        return array;
      }
      default: {
        nlohmann::ordered_json object = nlohmann::ordered_json::object();
        for (std::uint32_t n = draws.below(30); n > 0; --n) object["k" + std::to_string(draws.below(40))] = self(self, depth + 1);
        return object;
      }
    }
  };
  class Pieces : public ByteSource {
   public:
    Pieces(std::string_view text, std::size_t size) : rest_(text), size_(size) {}
    std::string_view next() override {
      const std::string_view piece = rest_.substr(0, size_);
      rest_.remove_prefix(piece.size());
      return piece;
    }

   private:
    std::string_view rest_;
    const std::size_t size_;
  };
  for (int i = 0; i < 300; ++i) {
    const std::string text = value(value, 0).dump(static_cast<int>(draws.below(3)) - 1);
    const nlohmann::ordered_json wanted = nlohmann::ordered_json::parse(text);
    EXPECT_EQ(read_json(text), wanted);
    for (const std::size_t size : {1, 3, 1000}) {
      Pieces pieces(text, size);
      EXPECT_EQ(read_json(pieces), wanted);
    }
  }
}

TEST(BoundedJsonTest, PacksNumbers) {
  const auto read = [](std::string_view text) { return read_json(text, {.compact_numbers = true}); };
  EXPECT_EQ(json_numbers(read("[1,-2,9223372036854775807]"))->whole, (std::vector<std::int64_t>{1, -2, INT64_MAX}));
  const std::optional<JsonNumbers> mixed = json_numbers(read("[1,2,2.5,3]"));
  ASSERT_TRUE(mixed && !mixed->is_whole());
  EXPECT_EQ(mixed->real, (std::vector<float>{1, 2, 2.5, 3}));
  EXPECT_EQ(mixed->first_real, 2u);
  EXPECT_EQ(json_numbers(read("[9223372036854775808]"))->real, std::vector<float>{9223372036854775808.0f});
  EXPECT_EQ(json_numbers(read("[]"))->size(), 0u);
  EXPECT_EQ(json_numbers(read("[1,\"a\"]")), std::nullopt);
  EXPECT_EQ(read("[1,\"a\",2]").dump(), "[1,\"a\",2]");
  EXPECT_EQ(read("[1,[2,3],{\"a\":4}]")[2].dump(), "{\"a\":4}");
  EXPECT_EQ(json_numbers(read("[1,[2,3]]")[1])->whole, (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(json_numbers(read("{\"a\":1}")), std::nullopt);
}

// What the lexer keeps while nothing ends is memory, too: a megabyte of blanks becomes no value.
TEST(BoundedJsonTest, BlanksAndUnendedTextsAreCounted) {
  struct Account : MemoryAccount {
    std::size_t taken = 0, most = SIZE_MAX;
    void take(std::size_t bytes) override {
      if (taken + bytes > most) fail(ErrorCode::resource_exhausted, "no more");
      taken += bytes;
    }
  };
  const auto taken = [](const std::string& text, std::size_t most = SIZE_MAX) {
    const auto account = std::make_shared<Account>();
    account->most = most;
    const ClientWork work(nullptr, account);
    try {
      read_json(text);
    } catch (const Error& e) {
      EXPECT_TRUE(e.code() == ErrorCode::resource_exhausted || e.code() == ErrorCode::invalid_argument);
    }
    return account->taken;
  };
  constexpr std::size_t kMegabyte = 1 << 20;
  EXPECT_GT(taken(std::string(kMegabyte, ' ') + "1"), kMegabyte);
  EXPECT_GT(taken("[\"" + std::string(kMegabyte, 'a')), kMegabyte);
  EXPECT_LE(taken(std::string(8 * kMegabyte, ' ') + "1", kMegabyte), kMegabyte);
  EXPECT_LT(taken("[" + std::string(1000, ' ') + "1]"), 10'000u);  // what is usual costs nothing
}

#ifndef __SANITIZE_THREAD__  // work that is counted on one thread: nothing for ThreadSanitizer to see, and minutes under it
// Every form that a body may have: eight times the bytes are about eight times the work.
TEST(BoundedJsonTest, WorkGrowsWithTheLengthWhateverTheForm) {
  const auto repeated = [](const std::string& one, const char* begin, const char* end) {
    return [=](std::size_t size) {
      std::string text = begin;
      while (text.size() + one.size() < size) text += one + ",";
      return text + one + end;
    };
  };
  const std::string deep = [] {
    std::string text = "1";
    for (int i = 0; i < 30; ++i) text = "{\"a\":[" + text + "],\"b\":1,\"c\":2}";
    return text;
  }();
  const std::pair<const char*, std::function<std::string(std::size_t)>> forms[] = {
      {"empty objects", repeated("{}", "[", "]")},
      {"empty arrays", repeated("[]", "[", "]")},
      {"objects of a key", repeated(R"({"a":0})", "[", "]")},
      {"objects of some keys", repeated(R"({"a":0,"b":1,"c":2,"d":3,"e":"f"})", "[", "]")},
      {"objects of twenty keys", repeated(object_of(20), "[", "]")},
      {"deep values", repeated(deep, "[", "]")},
      {"nulls", repeated("null", "[", "]")},
      {"whole numbers", repeated("12345", "[", "]")},
      {"fractions", repeated("-1.2345678901234567e-5", "[", "]")},
      {"texts", repeated(R"("text")", "[", "]")},
      {"texts of escapes", repeated(R"("\u00e9\n\\\"\ud83d\ude00")", "[", "]")},
      {"one long text", [](std::size_t size) { return "\"" + std::string(size, 'a') + "\""; }},
      {"one long text of escapes",
       [](std::size_t size) {
         std::string text = "\"";
         while (text.size() < size) text += "\\u0041";
         return text + "\"";
       }},
      {"one long number", [](std::size_t size) { return "0." + std::string(size, '3'); }},
      {"one long key", [](std::size_t size) { return "{\"" + std::string(size, 'k') + "\":1}"; }},
      {"long keys of one beginning",
       [](std::size_t size) {  // 1,000 of them, longer and longer
         std::string text = "{\"\":0";
         for (int i = 0; i < 1000; ++i) text += ",\"" + std::string(size / 1000, 'k') + std::to_string(i) + "\":1";
         return text + "}";
       }},
      {"one key, again and again",
       [](std::size_t size) {
         std::string text = "[{}";
         while (text.size() < size) text += R"(,{"a":1,"a":2,"a":3,"a":4})";
         return text + "]";
       }},
      {"a large value before other keys, level by level",
       [](std::size_t size) {
         std::string text = "[0";
         while (text.size() < size) text += ",0";
         text += "]";
         for (int i = 0; i < 60; ++i) text = "{\"a\":" + text + R"(,"b":1,"c":2,"d":3,"e":4,"f":5,"g":6,"h":7,"i":8})";
         return text;
       }},
      {"blanks", [](std::size_t size) { return std::string(size, ' ') + "1"; }},
      {"what is none, at the end", [](std::size_t size) { return std::string(size, ' ') + "x"; }},
      {"an end that is missing", [](std::size_t size) { return "[\"" + std::string(size, 'a'); }},
  };
  for (const auto& [name, make] : forms)
    for (const bool pack : {false, true}) {
      const double doubled = growth(
          make,
          [&](const std::string& text) {
            try {
              read_json(text, {.compact_numbers = pack});
            } catch (const Error&) {
            }
          },
          40'000);
      EXPECT_LT(doubled, kLinearGrowth) << name << (pack ? ", packed" : "");
    }
  // The control: a reader that looks at all before it for every value.
  const double quadratic = growth([](std::size_t size) { return std::string(size, 'a'); },
                                  [](const std::string& text) {
                                    volatile std::size_t sum = 0;
                                    for (std::size_t i = 0; i < text.size(); ++i)
                                      for (std::size_t j = 0; j < i; ++j) sum = sum + static_cast<std::size_t>(text[j]);
                                  },
                                  2000, 100);  // measured once, whatever it looks like
  EXPECT_GT(quadratic, 3.5);
}

// A key is not compared with all before it: an object of 4,000 is 8 times the work of one of 500.
TEST(BoundedJsonTest, WorkGrowsWithTheKeysOfOneObject) {
  const auto alike = [](std::size_t keys) { return object_of(static_cast<int>(keys)); };
  const auto beginning_alike = [](std::size_t keys) {
    std::string text = "{";
    for (std::size_t i = 0; i < keys; ++i) text += (i ? ",\"" : "\"") + std::string(100, 'k') + std::to_string(i) + "\":1";
    return text + "}";
  };
  const auto one_again = [](std::size_t keys) {
    std::string text = "{\"k\":0";
    for (std::size_t i = 1; i < keys; ++i) text += ",\"k\":1";
    return text + "}";
  };
  const auto read = [](const std::string& text) { read_json(text); };
  EXPECT_LT(growth(alike, read, 500), kLinearGrowth);
  EXPECT_LT(growth(beginning_alike, read, 500), kLinearGrowth);
  EXPECT_LT(growth(one_again, read, 500), kLinearGrowth);
  EXPECT_LT(growth(
                alike, [](const std::string& text) { read_own_json(text); }, 2000),
            kLinearGrowth);
}

// A value in random form, of any size: nothing in it takes more than so much a byte. The most of 4,800 forms from 120 seeds was 9.2 times what a byte
// of a text takes; one that walks over what stands before it takes a thousand times that.
TEST(BoundedJsonTest, WorkOfRandomFormsIsBoundedByTheByte) {
  const WorkMeter meter;
  const double usual = meter.of([&] { read_json("\"" + std::string(200'000, 'a') + "\""); }) / 200'000;
  const std::uint64_t seed = test_seed();
  RandomSequence draws(seed, RandomStream::fuzz);
  const char* const pieces[] = {"{", "}", "[", "]", "{}", "[]", ",", ":", "\"a\":", "\"a\"", "1", "-0.5e3", "null", "\"\\u0000\"", "{\"a\":1},", "[[[[1]]]],"};
  double most = 0;
  for (int i = 0; i < 40; ++i) {
    // One piece of a grammar, repeated: faults come late or never.
    std::string one;
    for (std::uint32_t n = 1 + draws.below(6); n > 0; --n) one += pieces[draws.below(std::size(pieces))];
    for (const char* frame : {"[", ""}) {
      std::string text = frame;
      while (text.size() < 200'000) text += one + (*frame ? "," : "");
      const double each = meter.of([&] { read_json_or_null(text); }, 1) / static_cast<double>(text.size());  // ten times too long is no fault
      most = std::max(most, each / usual);
      EXPECT_LT(each, 100 * usual) << one << ", seed " << seed;
    }
  }
  RecordProperty("most", std::to_string(most));
}
#endif

TEST(BoundedJsonTest, EndsWhenNobodyWaitsAndCountsWhatItTakes) {
  struct Account : MemoryAccount {
    std::size_t taken = 0, most = 0;
    void take(std::size_t bytes) override {
      if ((taken += bytes) > most) fail(ErrorCode::resource_exhausted, "no room");
    }
  };
  std::string text = "[{}";
  while (text.size() < 1'500'000) text += ",{}";
  text += "]";
  const auto gone = std::make_shared<std::atomic<bool>>(false);
  const auto account = std::make_shared<Account>();
  account->most = SIZE_MAX;
  {
    const ClientWork work(gone, account);
    EXPECT_EQ(read_json(text).size(), 500'000u);
    EXPECT_GT(account->taken, 500'000 * sizeof(nlohmann::ordered_json));
    account->taken = 0, account->most = 1 << 20;
    EXPECT_THROW(read_json_or_null(text), Error);  // no room is no fault of the text
    *gone = true;
    const WorkMeter meter;
    const double whole = meter.of([&] {
      const ClientWork alone(nullptr, nullptr);
      read_json(text);
    });
    EXPECT_LT(meter.of([&] { EXPECT_THROW(read_json(text), Error); }), whole / 10);
  }
  EXPECT_EQ(read_json(text).size(), 500'000u);  // outside nothing is asked
}

}  // namespace
}  // namespace lockstep
