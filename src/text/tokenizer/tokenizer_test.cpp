#include "text/tokenizer/tokenizer.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <chrono>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "base/error.h"
#include "base/hash.h"
#include "text/tokenizer/byte_alphabet.h"
#include "text/tokenizer/detokenizer.h"
#include "text/utf8.h"

namespace lockstep {
namespace {
using nlohmann::json;

const json& fixture() {
  static const json value = [] {
    std::ifstream file(LOCKSTEP_SOURCE_DIR "/tests/text/fixtures/byte_level_bpe.json");
    return json::parse(file);
  }();
  return value;
}

json complete(const json& pipeline) {
  json whole = pipeline["tokenizer"];
  whole["model"]["vocab"] = fixture()["vocab"];
  json merges = fixture()["merges"];
  if (pipeline["merges_as_strings"]) {
    for (json& merge : merges) merge = merge[0].get<std::string>() + " " + merge[1].get<std::string>();
  }
  whole["model"]["merges"] = merges;
  return whole;
}

json plain() { return complete(fixture()["pipelines"][0]); }

Tokenizer make(const json& value) { return Tokenizer::from_json(value.dump()); }

TEST(Tokenizer, AgreesWithHuggingFace) {
  std::size_t cases = 0;
  for (const json& pipeline : fixture()["pipelines"]) {
    const Tokenizer tokenizer = make(complete(pipeline));
    for (std::size_t i = 0; i < pipeline["cases"].size(); ++i, ++cases) {
      const json& expected = pipeline["cases"][i];
      const auto text = fixture()["texts"][i].get<std::string>();
      SCOPED_TRACE(pipeline["name"].get<std::string>() + ": '" + text + "'");
      const auto ids = expected["ids"].get<std::vector<std::int32_t>>();
      const auto special = expected.value("special", ids);
      EXPECT_EQ(tokenizer.encode(text, false), ids);
      EXPECT_EQ(tokenizer.encode(text, true), special);
      EXPECT_EQ(tokenizer.decode(special, false), expected.value("decoded", text));
      EXPECT_EQ(tokenizer.decode(special, true), expected.value("decoded_skip", text));
    }
  }
  EXPECT_GE(cases, 1000u);
}

#ifdef __SANITIZE_ADDRESS__
constexpr std::size_t kSweeps = 1;  // bits are proved by the other build
#else
constexpr std::size_t kSweeps = 100;
#endif

// Every assigned code point in four contexts, through the pipelines of the model families: the classes of all patterns.
TEST(Tokenizer, AgreesWithHuggingFaceOnEveryCodePoint) {
  std::vector<std::uint32_t> points;
  for (const json& range : fixture()["sweep_ranges"]) {
    for (std::uint32_t c = range[0]; c <= range[1].get<std::uint32_t>(); ++c) points.push_back(c);
  }
  std::size_t sweeps = 0;
  for (const json& pipeline : fixture()["pipelines"]) {
    if (!pipeline.contains("sweep_sha256") || ++sweeps > kSweeps) continue;
    const Tokenizer tokenizer = make(complete(pipeline));
    Sha256 digest;
    for (std::size_t start = 0; start < points.size(); start += 64) {
      std::string text;
      for (std::size_t i = start; i < std::min(start + 64, points.size()); ++i) {
        std::string c;
        utf8_append(c, points[i]);
        text += "a" + c + "1" + c + " " + c + "'" + c + "\n";
      }
      const auto ids = tokenizer.encode(text, false);
      digest.update(ids.data(), ids.size() * sizeof(std::int32_t));
    }
    EXPECT_EQ(digest.hex(), pipeline["sweep_sha256"].get<std::string>()) << pipeline["name"];
  }
  EXPECT_GE(sweeps, 6u);
}

// Bytes of all kinds, half of them from pieces that form characters.
rc::Gen<std::string> any_bytes() {
  const auto piece =
      rc::gen::oneOf(rc::gen::arbitrary<std::string>(), rc::gen::string<std::string>(),
                     rc::gen::elementOf(std::vector<std::string>{"\xC3\xA9", "\xE6\x97\xA5", "\xF0\x9F\x99\x82", "\xF0\x9F", "\xE6", "\xED\xA0\x80", "\xC0\x80",
                                                                 "\xFF", " ", "  ", "\n", "<s>", "word", "tail", "<mask>", "12", "the"}));
  return rc::gen::map(rc::gen::container<std::vector<std::string>>(piece), [](const std::vector<std::string>& pieces) {
    std::string all;
    for (const std::string& p : pieces) all += p;
    return all;
  });
}

TEST(Tokenizer, AnyBytesComeBackAsTheirLossyText) {
  const Tokenizer tokenizer = make(plain());
  EXPECT_TRUE(rc::check([&] {
    const std::string bytes = *any_bytes();
    const auto ids = tokenizer.encode(bytes, true);
    RC_ASSERT(tokenizer.decode(ids, false) == utf8_lossy(bytes));
    RC_ASSERT(utf8_valid(utf8_lossy(bytes)));
  }));
}

TEST(Tokenizer, EveryPipelineTakesAnyBytes) {
  std::vector<Tokenizer> all;
  for (const json& pipeline : fixture()["pipelines"]) all.push_back(make(complete(pipeline)));
  EXPECT_TRUE(rc::check([&] {
    const std::string bytes = *any_bytes();
    for (const Tokenizer& tokenizer : all) {
      const auto ids = tokenizer.encode(bytes, true);
      RC_ASSERT(ids == tokenizer.encode(utf8_lossy(bytes), true));
      for (const std::int32_t id : ids) RC_ASSERT(id >= 0 && id < tokenizer.vocab_size());
    }
  }));
}

TEST(Detokenizer, PartsAreValidAndTogetherEqualDecode) {
  std::vector<Tokenizer> all;
  for (const json& pipeline : fixture()["pipelines"]) all.push_back(make(complete(pipeline)));
  EXPECT_TRUE(rc::check([&] {
    const Tokenizer& tokenizer = all[*rc::gen::inRange<std::size_t>(0, all.size())];
    const bool skip = *rc::gen::arbitrary<bool>();
    const auto ids = *rc::gen::container<std::vector<std::int32_t>>(rc::gen::inRange(-2, tokenizer.vocab_size() + 3));
    Detokenizer detokenizer(tokenizer, skip);
    for (int round = 0; round < 2; ++round) {  // flush() makes it ready again
      std::string text;
      for (const std::int32_t id : ids) {
        const std::string part = detokenizer.push(id);
        RC_ASSERT(utf8_valid(part));
        text += part;
      }
      text += detokenizer.flush();
      RC_ASSERT(text == tokenizer.decode(ids, skip));
    }
  }));
}

TEST(Detokenizer, HoldsACharacterUntilItIsWhole) {
  const Tokenizer tokenizer = make(plain());
  Detokenizer detokenizer(tokenizer, true);
  EXPECT_EQ(detokenizer.push(0xF0), "");
  EXPECT_EQ(detokenizer.push(0x9F), "");
  EXPECT_EQ(detokenizer.push(0x99), "");
  EXPECT_EQ(detokenizer.push(0x82), "\xF0\x9F\x99\x82");
  EXPECT_EQ(detokenizer.push(0xE6), "");
  EXPECT_EQ(detokenizer.push('a'),
            "\xEF\xBF\xBD"
            "a");  // what never became a character is certain now
  EXPECT_EQ(detokenizer.push(0xC3), "");
  EXPECT_EQ(detokenizer.flush(), "\xEF\xBF\xBD");
}

TEST(Tokenizer, SpecialTextIsOrdinaryOnRequest) {
  const Tokenizer tokenizer = make(complete(fixture()["pipelines"][1]));
  const auto id = tokenizer.token_id("<s>");
  ASSERT_TRUE(id);
  EXPECT_TRUE(tokenizer.is_special(*id));
  EXPECT_EQ(tokenizer.encode("<s>", false), std::vector<std::int32_t>{*id});
  const auto ordinary = tokenizer.encode("<s>", false, false);
  EXPECT_EQ(tokenizer.decode(ordinary, true), " <s>");
  EXPECT_EQ(std::count(ordinary.begin(), ordinary.end(), *id), 0);
  EXPECT_EQ(tokenizer.decode(std::vector{*id}, true), "");
  EXPECT_EQ(tokenizer.decode(std::vector{*id}, false), "<s>");
}

TEST(Tokenizer, IdsTextsAndBytes) {
  const Tokenizer tokenizer = make(complete(fixture()["pipelines"][1]));
  for (std::int32_t id = 0; id < tokenizer.vocab_size(); ++id) EXPECT_EQ(tokenizer.token_id(tokenizer.token_text(id)), id);
  EXPECT_EQ(tokenizer.token_text(' '), "\xC4\xA0");
  EXPECT_EQ(tokenizer.token_bytes(' '), " ");
  EXPECT_EQ(tokenizer.token_text(-1), "");
  EXPECT_EQ(tokenizer.token_text(tokenizer.vocab_size()), "");
  EXPECT_EQ(tokenizer.token_id("no such token"), std::nullopt);
}

// The same merging by its definition: again and again the leftmost pair of lowest rank.
std::vector<std::int32_t> merge_slowly(std::vector<std::string> symbols) {
  std::map<std::pair<std::string, std::string>, std::size_t> ranks;
  for (std::size_t i = 0; i < fixture()["merges"].size(); ++i) {
    ranks[{fixture()["merges"][i][0].get<std::string>(), fixture()["merges"][i][1].get<std::string>()}] = i;
  }
  for (;;) {
    std::size_t best = ranks.size(), at = 0;
    for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
      const auto it = ranks.find({symbols[i], symbols[i + 1]});
      if (it != ranks.end() && it->second < best) best = it->second, at = i;
    }
    if (best == ranks.size()) break;
    symbols[at] += symbols[at + 1];
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
  std::vector<std::int32_t> ids;
  for (const std::string& symbol : symbols) ids.push_back(fixture()["vocab"][symbol].get<std::int32_t>());
  return ids;
}

TEST(Tokenizer, MergesByDefinition) {
  const Tokenizer tokenizer = make(complete(fixture()["pipelines"][2]));  // one piece a text
  EXPECT_TRUE(rc::check([&] {
    const auto text = *rc::gen::container<std::string>(rc::gen::elementOf(std::string("theanrousdi  o")));
    std::vector<std::string> symbols;
    for (const char c : text) symbols.push_back(byte_alphabet()[static_cast<unsigned char>(c)]);
    RC_ASSERT(tokenizer.encode(text, false) == merge_slowly(symbols));
  }));
}

TEST(Tokenizer, LongPiecesTakeLongOnlyInProportion) {
  const Tokenizer tokenizer = make(complete(fixture()["pipelines"][2]));
  std::string text;
  std::mt19937 random(1);
  for (int i = 0; i < 2'000'000; ++i) text += "theanrousdi "[random() % 12];
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(text, false), false), text);
  // A quadratic loop would need hours.
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(120));
}

TEST(Tokenizer, LongRunsOfOneKind) {
  for (const json& pipeline : fixture()["pipelines"]) {
    const Tokenizer tokenizer = make(complete(pipeline));
    for (const std::string unit : {" ", "\n", "a", "1", "!", "\xE6\x97\xA5", "\xFF", " \n", "<"}) {
      std::string text;
      while (text.size() < 20'000) text += unit;
      const auto ids = tokenizer.encode(text, false);
      if (pipeline["name"] != "gpt2") continue;
      EXPECT_EQ(tokenizer.decode(ids, false), utf8_lossy(text));
    }
  }
}

struct Refusal {
  const char* what;
  std::function<void(json&)> change;
  ErrorCode code;
  const char* names;  // part of the message
};

TEST(Tokenizer, RefusesByName) {
  const auto added = [](json token) { return [token](json& t) { t["added_tokens"].push_back(token); }; };
  const auto n = static_cast<int>(fixture()["vocab"].size());
  const auto split = [](const char* pattern) {
    return [pattern](json& t) { t["pre_tokenizer"] = {{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}}; };
  };
  const std::vector<Refusal> refusals = {
      {"no model", [](json& t) { t.erase("model"); }, ErrorCode::corrupt_file, "model is null"},
      {"unigram", [](json& t) { t["model"]["type"] = "Unigram"; }, ErrorCode::unsupported, "\"Unigram\""},
      {"dropout", [](json& t) { t["model"]["dropout"] = 0.1; }, ErrorCode::unsupported, "model.dropout"},
      {"suffix", [](json& t) { t["model"]["end_of_word_suffix"] = "</w>"; }, ErrorCode::unsupported, "end_of_word_suffix"},
      {"unknown key", [](json& t) { t["model"]["ignore_merge"] = true; }, ErrorCode::unsupported, "did you mean 'ignore_merges'"},
      {"empty vocabulary", [](json& t) { t["model"]["vocab"] = json::object(); }, ErrorCode::corrupt_file, "model.vocab"},
      {"id twice", [](json& t) { t["model"]["vocab"]["zzzz"] = 5; }, ErrorCode::corrupt_file, "id 5"},
      {"negative id", [](json& t) { t["model"]["vocab"]["zzzz"] = -1; }, ErrorCode::corrupt_file, "zzzz"},
      {"huge id", [](json& t) { t["model"]["vocab"]["zzzz"] = 1ull << 40; }, ErrorCode::corrupt_file, "zzzz"},
      {"merge of unknown",
       [](json& t) {
         t["model"]["merges"].push_back({"q", "nope"});
       },
       ErrorCode::corrupt_file, "'nope'"},
      {"merge to unknown",
       [](json& t) {
         t["model"]["merges"].push_back({"q", "z"});
       },
       ErrorCode::corrupt_file, "'qz'"},
      {"three-part merge", [](json& t) { t["model"]["merges"] = {"a b c"}; }, ErrorCode::corrupt_file, "merges[0]"},
      {"scripts",
       [](json& t) {
         t["pre_tokenizer"] = {{"type", "UnicodeScripts"}};
       },
       ErrorCode::unsupported, "'UnicodeScripts'"},
      {"long mark",
       [](json& t) {
         t["pre_tokenizer"] = {{"type", "Metaspace"}, {"replacement", "ab"}};
       },
       ErrorCode::corrupt_file, "one character"},
      {"two prefixes",
       [](json& t) {
         t["pre_tokenizer"] = {{"type", "Metaspace"}, {"replacement", "_"}, {"add_prefix_space", false}, {"prepend_scheme", "first"}};
       },
       ErrorCode::corrupt_file, "add_prefix_space"},
      {"step behind ByteLevel",
       [](json& t) {
         t["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", {t["pre_tokenizer"], {{"type", "Digits"}, {"individual_digits", true}}}}};
       },
       ErrorCode::unsupported, "behind ByteLevel"},
      {"behaviour",
       [](json& t) {
         t["pre_tokenizer"] = {{"type", "Split"}, {"pattern", {{"String", "a"}}}, {"behavior", "Isolate"}, {"invert", false}};
       },
       ErrorCode::unsupported, "did you mean 'Isolated'"},
      {"bad pattern", split("(a"), ErrorCode::invalid_argument, "'(a' does not compile"},
      {"nested class", split("[a[b]]"), ErrorCode::unsupported, "a class inside a class"},
      {"class intersection", split("[a&&b]"), ErrorCode::unsupported, "&&"},
      {"verb", split("(*ANY)a"), ErrorCode::unsupported, "verb"},
      {"hexadecimal escape of Ruby", split("\\h"), ErrorCode::unsupported, "\\h"},
      {"possessive interval", split("a{1,2}+"), ErrorCode::unsupported, "interval"},
      {"normalizer",
       [](json& t) {
         t["normalizer"] = {{"type", "Precompiled"}};
       },
       ErrorCode::unsupported, "'Precompiled'"},
      {"decoder",
       [](json& t) {
         t["decoder"] = {{"type", "WordPiece"}};
       },
       ErrorCode::unsupported, "'WordPiece'"},
      {"no decoder", [](json& t) { t["decoder"] = nullptr; }, ErrorCode::unsupported, "decoder is null"},
      {"post-processor",
       [](json& t) {
         t["post_processor"] = {{"type", "BertProcessing"}};
       },
       ErrorCode::unsupported, "'BertProcessing'"},
      {"added id with a gap", added({{"id", n + 7}, {"content", "<x>"}}), ErrorCode::corrupt_file, "next free"},
      {"added id taken", added({{"id", 65}, {"content", "<x>"}}), ErrorCode::corrupt_file, "allowed is"},
      {"empty added token", added({{"id", n}, {"content", ""}}), ErrorCode::corrupt_file, "added_tokens[0].content"},
      {"top-level key", [](json& t) { t["Model"] = 1; }, ErrorCode::unsupported, "Model"},
      {"version", [](json& t) { t["version"] = "2.0"; }, ErrorCode::unsupported, "version"},
  };
  for (const Refusal& refusal : refusals) {
    json changed = plain();
    refusal.change(changed);
    try {
      make(changed);
      ADD_FAILURE() << refusal.what << " was accepted";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), refusal.code) << refusal.what << ": " << e.what();
      EXPECT_NE(std::string(e.what()).find(refusal.names), std::string::npos) << refusal.what << ": " << e.what();
    }
  }
}

TEST(Tokenizer, EndlessBacktrackingIsAnError) {
  json changed = plain();
  changed["pre_tokenizer"] = {
      {"type", "Sequence"}, {"pretokenizers", {{{"type", "Split"}, {"pattern", {{"Regex", "(a|aa)+$"}}}, {"behavior", "Isolated"}}, changed["pre_tokenizer"]}}};
  const Tokenizer tokenizer = make(changed);
  try {
    tokenizer.encode(std::string(200, 'a') + "b", false);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::resource_exhausted);
  }
}

// A damaged file is an Error or a tokenizer, never a crash: every truncation class and random bytes changed.
TEST(Tokenizer, DamagedFiles) {
  json small = plain();
  json merges = json::array();
  for (int i = 0; i < 4; ++i) merges.push_back(small["model"]["merges"][i]);
  small["model"]["merges"] = merges;
  const std::string whole = small.dump();
  const auto try_it = [](const std::string& text) {
    try {
      const Tokenizer tokenizer = Tokenizer::from_json(text);
      tokenizer.decode(tokenizer.encode("Hello, 123  w\xC3\xB6rld", true), true);
    } catch (const Error&) {
    }
  };
  for (std::size_t cut = 0; cut < whole.size(); cut += 37) try_it(whole.substr(0, cut));
  std::mt19937 random(2);
  for (int i = 0; i < 400; ++i) {
    std::string damaged = whole;
    for (int k = 0; k < 3; ++k) damaged[random() % damaged.size()] = static_cast<char>(random() % 256);
    try_it(damaged);
  }
}

TEST(Tokenizer, MissingFile) {
  try {
    Tokenizer::from_file("/nonexistent/tokenizer.json");
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::not_found);
  }
}

}  // namespace
}  // namespace lockstep
