// Streaming decoders: certain text comes at once, uncertain text waits, and the parts make the whole.
#include "text/tokenizer/decoder.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "text/utf8.h"

namespace lockstep {
namespace {
using nlohmann::json;

json replace(const char* what, const char* with) { return {{"type", "Replace"}, {"pattern", {{"String", what}}}, {"content", with}}; }
json strip(int start, int stop) { return {{"type", "Strip"}, {"content", " "}, {"start", start}, {"stop", stop}}; }
json sequence(json parts) { return {{"type", "Sequence"}, {"decoders", std::move(parts)}}; }
const json kFallback = {{"type", "ByteFallback"}}, kFuse = {{"type", "Fuse"}};
const json kLlama = sequence({replace("_", " "), kFallback, kFuse, strip(1, 0)});

std::vector<std::string> parts(const json& decoder, const std::vector<std::string>& tokens) {
  Decoder::Stream stream{Decoder::from_json(decoder)};
  std::vector<std::string> result;
  for (const std::string& token : tokens) stream.push(token, result.emplace_back());
  stream.finish(result.emplace_back());
  return result;
}

std::string whole(const json& decoder, const std::vector<std::string>& tokens) {
  std::string text;
  for (const std::string& part : parts(decoder, tokens)) text += part;
  return text;
}

using Parts = std::vector<std::string>;

TEST(Decoder, StripsTheFrontOfTheWholeTextOnly) {
  EXPECT_EQ(parts(kLlama, {"_a", "_b", "_", "_c"}), (Parts{"a", " b", " ", " c", ""}));
  EXPECT_EQ(parts(kLlama, {"_", "_a"}), (Parts{"", " a", ""}));
}

TEST(Decoder, ARunOfByteTokensWaitsForItsEnd) {
  EXPECT_EQ(parts(kLlama, {"<0xE4>", "<0xBD>", "<0xA0>", "a"}), (Parts{"", "", "",
                                                                       "\xE4\xBD\xA0"
                                                                       "a",
                                                                       ""}));
  // One broken byte makes all of its run U+FFFD, so the character before it was not certain.
  const std::string replaced = "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD";
  EXPECT_EQ(parts(kLlama, {"<0xE4>", "<0xBD>", "<0xA0>", "<0xFF>", "b"}), (Parts{"", "", "", "", replaced + "b", ""}));
  EXPECT_EQ(whole(kLlama, {"<0x+A>", "<0x4g>", "<0x041>"}), "\n<0x4g><0x041>");
}

TEST(Decoder, StripsEachTokenBeforeFuse) {
  EXPECT_EQ(whole(strip(1, 1), {"  a  ", " ", "   ", "b "}), " a  b");
  EXPECT_EQ(whole(sequence({kFuse, strip(0, 2)}), {"a ", " ", " b", "  ", "  "}), "a   b  ");
  EXPECT_EQ(parts(sequence({kFuse, strip(0, 1)}), {"a ", "b ", " "}), (Parts{"a", " b", " ", ""}));
}

TEST(Decoder, MetaspaceKnowsTheFirstToken) {
  const json metaspace = {{"type", "Metaspace"}, {"replacement", "_"}, {"prepend_scheme", "always"}};
  EXPECT_EQ(whole(metaspace, {"_a_b", "_c"}), "ab c");
  Decoder::Stream stream{Decoder::from_json(metaspace)};
  for (int round = 0; round < 2; ++round) {
    std::string text;
    stream.push("_a", text);
    stream.finish(text);
    EXPECT_EQ(text, "a");
  }
}

TEST(Decoder, TokenBytesAreThoseInTheMiddleOfAText) {
  const Decoder llama = Decoder::from_json(kLlama);
  EXPECT_EQ(llama.token_bytes("_the"), " the");
  EXPECT_EQ(llama.token_bytes("<0xE4>"), "\xE4");
  EXPECT_EQ(Decoder::from_json({{"type", "Metaspace"}, {"replacement", "_"}}).token_bytes("_a"), " a");
  EXPECT_EQ(Decoder::from_json(strip(1, 0)).token_bytes("  a"), " a");
  EXPECT_EQ(Decoder::byte_level().token_bytes("\xC4\xA0"
                                              "a"),
            " a");
}

TEST(Decoder, PartsAreWholeCharacters) {
  const std::vector<json> decoders = {
      kLlama, {{"type", "ByteLevel"}}, sequence({kFallback, kFuse, replace("_", " ")}), sequence({{{"type", "ByteLevel"}}, strip(1, 1)})};
  const std::vector<std::string> tokens = {"_a", " ", "  ", "<0xE4>", "<0xBD>", "<0xFF>", "\xC3\xA6", "\xC2\xBD", "\xC4\xA0", "_", "\xE6\x97\xA5", "<0x41>"};
  EXPECT_TRUE(rc::check([&] {
    const json& decoder = *rc::gen::elementOf(decoders);
    const auto chosen = *rc::gen::container<std::vector<std::string>>(rc::gen::elementOf(tokens));
    for (const std::string& part : parts(decoder, chosen)) RC_ASSERT(utf8_valid(part));
  }));
}

TEST(Decoder, RefusesByName) {
  const auto refused = [](const json& value, const char* names) {
    try {
      Decoder::from_json(value);
      ADD_FAILURE() << value << " was accepted";
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find(names), std::string::npos) << e.what();
    }
  };
  refused(nullptr, "decoder is null");
  refused({{"type", "CTC"}}, "'CTC'");
  refused(sequence({kFuse, {{"type", "WordPiece"}}}), "decoder.decoders[1]");
  refused(strip(-1, 0), "decoder.start");
  refused({{"type", "Strip"}, {"content", "ab"}, {"start", 1}, {"stop", 0}}, "one character");
  refused(replace("", "a"), "decoder.pattern.String");
  json deep = kFuse;
  for (int i = 0; i < 5; ++i) deep = sequence({deep});
  refused(deep, "'Sequence'");
}

}  // namespace
}  // namespace lockstep
