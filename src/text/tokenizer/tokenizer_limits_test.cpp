// Inputs at their limits: deep and huge files, long texts of one character, offsets of normalized text.
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "text/tokenizer/tokenizer.h"
#include "text/tokenizer/unicode_forms.h"
#include "text/utf8.h"

namespace lockstep {
namespace {
using nlohmann::json;
using Ids = std::vector<std::int32_t>;
using Offsets = std::vector<CharacterRange>;

// By characters, with a mark for spaces and all byte tokens; no merges but "_a" and "ab".
json by_characters() {
  json vocab = {{"<unk>", 0}};
  for (int byte = 0; byte < 256; ++byte) vocab[fmt::format("<0x{:02X}>", byte)] = static_cast<int>(vocab.size());
  for (const char* text : {"_", "a", "b", "c", "\xC3\xA9", "_a", "ab", "k", "g"}) vocab[text] = static_cast<int>(vocab.size());
  const json replace = {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "_"}};
  return {{"version", "1.0"},
          {"added_tokens", json::array()},
          {"normalizer", {{"type", "Sequence"}, {"normalizers", {{{"type", "Prepend"}, {"prepend", "_"}}, replace}}}},
          {"pre_tokenizer", nullptr},
          {"post_processor", nullptr},
          {"decoder", {{"type", "Metaspace"}, {"replacement", "_"}}},
          {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", {"_ a", "a b"}}, {"unk_token", "<unk>"}, {"byte_fallback", true}, {"fuse_unk", true}}}};
}

Tokenizer limited_tokenizer(const json& value) { return Tokenizer::from_json(value.dump()); }

TEST(TokenizerOffsets, OfPrependedReplacedAndFallenBackCharacters) {
  const Tokenizer t = limited_tokenizer(by_characters());
  const OffsetEncoding got = t.encode_with_offsets(
      "a \xE6\x97\xA5"
      "b",
      false);
  EXPECT_EQ(got.ids, (Ids{*t.token_id("_a"), *t.token_id("_"), *t.token_id("<0xE6>"), *t.token_id("<0x97>"), *t.token_id("<0xA5>"), *t.token_id("b")}));
  EXPECT_EQ(got.offsets, (Offsets{{0, 1}, {1, 2}, {2, 3}, {2, 3}, {2, 3}, {3, 4}}));
}

TEST(TokenizerOffsets, OfComposedAndCompatibleCharacters) {
  json file = by_characters();
  file["normalizer"] = {{"type", "NFKC"}};
  const Tokenizer t = limited_tokenizer(file);
  const OffsetEncoding composed = t.encode_with_offsets(
      "e\xCC\x81"
      "c",
      false);
  EXPECT_EQ(composed.ids, (Ids{*t.token_id("\xC3\xA9"), *t.token_id("c")}));
  EXPECT_EQ(composed.offsets, (Offsets{{0, 1}, {2, 3}}));
  const OffsetEncoding apart = t.encode_with_offsets("\xE3\x8E\x8F", false);  // one character that is "kg"
  EXPECT_EQ(apart.ids, (Ids{*t.token_id("k"), *t.token_id("g")}));
  EXPECT_EQ(apart.offsets, (Offsets{{0, 1}, {0, 1}}));
}

// The text by which a special token is known is the one that the file has, whatever the normalizer makes of it: guards
// against forged tokens look for it.
TEST(TokenizerLimits, SpecialTokensKeepTheirNames) {
  json file = by_characters();
  const auto id = static_cast<std::int32_t>(file["model"]["vocab"].size());
  file["added_tokens"] = {{{"id", id}, {"content", "<s>"}, {"special", true}, {"normalized", true}}};
  const Tokenizer t = limited_tokenizer(file);
  EXPECT_EQ(t.token_text(id), "<s>");
  EXPECT_EQ(t.token_id("<s>"), id);
  EXPECT_EQ(t.decode(Ids{*t.token_id("a"), id}, true), "a");
  EXPECT_EQ(t.decode(Ids{*t.token_id("a"), id}, false), "a <s>");
}

TEST(TokenizerOffsets, OfBrokenBytesCountReplacementCharacters) {
  const OffsetEncoding got = limited_tokenizer(by_characters())
                                 .encode_with_offsets(
                                     "\xFF\xFF"
                                     "a",
                                     false);
  ASSERT_EQ(got.ids.size(), 8u);  // "_", six byte tokens of two U+FFFD, "a"
  EXPECT_EQ(got.offsets.back(), (CharacterRange{2, 3}));
}

TEST(UnicodeForms, WholeTextsAndCutOnesAgree) {
  const std::string text = "a\xCC\x81\xCC\xA7 \xE1\x84\x80\xE1\x85\xA1\xE1\x86\xA8 \xEA\xB0\x80\xE1\x86\xA8 \xEF\xAC\x81x \xE2\x84\xAB \xE0\xA5\x98 z";
  for (const NormalForm form : {NormalForm::nfc, NormalForm::nfd, NormalForm::nfkc, NormalForm::nfkd}) {
    std::string whole;
    for (const CharacterChange& c : normalization_changes(form, text)) utf8_append(whole, c.codepoint);
    EXPECT_EQ(normalize(form, text), whole);
    EXPECT_TRUE(is_normal(form, "plain text"));
    EXPECT_FALSE(is_normal(form, text));
    EXPECT_EQ(normalize(form, whole), whole);
  }
}

#ifdef __SANITIZE_ADDRESS__
constexpr std::size_t kLongText = std::size_t{1} << 17;
#else
constexpr std::size_t kLongText = std::size_t{1} << 20;
#endif

// A megabyte of one character through every kind: what is quadratic would take hours.
TEST(TokenizerLimits, AMegabyteOfOneCharacter) {
  std::ifstream file(LOCKSTEP_SOURCE_DIR "/tests/text/fixtures/byte_level_bpe.json");
  const json fixture = json::parse(file);
  std::vector<Tokenizer> all;
  for (const json& pipeline : fixture["pipelines"]) {
    const std::string name = pipeline["name"];
    if (name != "llama3" && name != "qwen3" && name != "deepseek" && name != "gpt2-prefix-space") continue;
    json whole = pipeline["tokenizer"];
    whole["model"]["vocab"] = fixture["vocab"];
    whole["model"]["merges"] = fixture["merges"];
    all.push_back(limited_tokenizer(whole));
  }
  all.push_back(limited_tokenizer(by_characters()));
  json metaspace = by_characters();
  metaspace["normalizer"] = {{"type", "NFC"}};
  metaspace["pre_tokenizer"] = {{"type", "Metaspace"}, {"replacement", "_"}, {"prepend_scheme", "first"}};
  all.push_back(limited_tokenizer(metaspace));
  ASSERT_EQ(all.size(), 6u);
  const auto start = std::chrono::steady_clock::now();
  for (const std::string unit : {" ", "\n", "a", "1", "!", "<", "\xE6\x97\xA5", "\xCC\x81", "\xFF", "\xEA\xB0\x80"}) {
    std::string text;
    while (text.size() < kLongText) text += unit;
    for (const Tokenizer& tokenizer : all) {
      const Ids ids = tokenizer.encode(text, true);
      EXPECT_EQ(ids, tokenizer.encode_with_offsets(text, true).ids);
      tokenizer.decode(ids, true);
    }
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(300));
}

TEST(TokenizerLimits, TextAboveTheLimitIsRefused) {
  const Tokenizer t = limited_tokenizer(by_characters());
  try {
    t.encode(std::string(Tokenizer::kMaxTextBytes + 1, 'a'), false);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::invalid_argument);
  }
}

TEST(TokenizerLimits, DeepAndOddFilesAreErrors) {
  const auto code_of = [](const std::string& text) {
    try {
      Tokenizer::from_json(text);
    } catch (const Error& e) {
      return e.code();
    }
    return ErrorCode::internal;
  };
  EXPECT_EQ(code_of(std::string(1 << 20, '[')), ErrorCode::corrupt_file);
  EXPECT_EQ(code_of(std::string(1 << 20, '[') + std::string(1 << 20, ']')), ErrorCode::corrupt_file);
  std::string deep = "{\"normalizer\":";
  for (int i = 0; i < 100'000; ++i) deep += R"({"type":"Sequence","normalizers":[)";
  for (int i = 0; i < 100'000; ++i) deep += "]}";
  json file = by_characters();
  const std::string model = file["model"].dump();
  EXPECT_EQ(code_of(deep + R"(,"decoder":{"type":"Fuse"},"model":)" + model + "}"), ErrorCode::unsupported);
  for (const char* part : {"normalizer", "pre_tokenizer", "post_processor", "decoder", "model", "added_tokens"}) {
    for (const json& odd : {json(5), json("x"), json::array({1}), json::object(), json{{"type", 7}}}) {
      json changed = by_characters();
      changed[part] = odd;
      const ErrorCode code = code_of(changed.dump());
      EXPECT_TRUE(code == ErrorCode::corrupt_file || code == ErrorCode::unsupported) << part << " " << odd;
    }
  }
}

TEST(TokenizerLimits, UnknownTokenThatIsMissingIsToldAtOnce) {
  json file = by_characters();
  file["model"]["unk_token"] = "<nowhere>";
  EXPECT_NO_THROW(limited_tokenizer(file));  // every byte has a token
  file["model"]["vocab"].erase("<0xE6>");
  EXPECT_THROW(limited_tokenizer(file), Error);
}

// Each step may make hundreds of characters of one; together they would never end.
TEST(TokenizerLimits, ANormalizerThatMakesMuchOfLittleEnds) {
  json file = by_characters();
  const json grow = {{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", std::string(256, 'a')}};
  file["normalizer"] = {{"type", "Sequence"}, {"normalizers", json(64, grow)}};
  const auto expect_refused = [](auto&& run) {
    try {
      run();
      FAIL();
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::resource_exhausted) << e.what();
    }
  };
  const Tokenizer t = limited_tokenizer(file);
  EXPECT_EQ(t.encode("bcb", false).size(), 3u);
  expect_refused([&] { t.encode("aa", false); });
  expect_refused([&] { t.encode_with_offsets("aa", false); });
  file["added_tokens"] = {{{"id", file["model"]["vocab"].size()}, {"content", "<a>"}, {"special", true}, {"normalized", true}}};
  expect_refused([&] { limited_tokenizer(file); });
}
}  // namespace
}  // namespace lockstep
