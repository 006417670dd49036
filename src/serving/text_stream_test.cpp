#include "serving/text_stream.h"

#include <gtest/gtest.h>

#include <algorithm>

#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

namespace lockstep {
namespace {

const Tokenizer& tokenizer() {
  static const Tokenizer t = Tokenizer::from_file(LOCKSTEP_SOURCE_DIR "/models/countdown-glm/tokenizer.json");
  return t;
}

struct Streamed {
  std::string text;
  std::vector<std::string> parts;
  bool stopped = false;
  std::size_t tokens = 0;
};

Streamed stream_of(const std::vector<std::int32_t>& ids, std::vector<std::string> stops) {
  TextStream stream(tokenizer(), std::move(stops));
  Streamed result;
  for (const std::int32_t id : ids) {
    result.parts.push_back(stream.push(id));
    ++result.tokens;
    if (stream.stopped()) break;
  }
  result.parts.push_back(stream.flush());
  for (const std::string& part : result.parts) result.text += part;
  result.stopped = stream.stopped();
  return result;
}

TEST(TextStream, SpecialTokensShowOnlyWhereTheyAreAskedFor) {
  const auto ids = tokenizer().encode("1<|bos|>2", false);
  ASSERT_NE(std::find(ids.begin(), ids.end(), 101), ids.end());
  const auto text = [&](SpecialText special) {
    TextStream stream(tokenizer(), std::vector<std::string>{}, special);
    std::string all;
    for (const std::int32_t id : ids) all += stream.push(id);
    return all + stream.flush();
  };
  EXPECT_EQ(text(SpecialText::hidden), "12");
  EXPECT_EQ(text(SpecialText::reasoning_marks), "12");
  EXPECT_EQ(text(SpecialText::shown), "1<|bos|>2");
}

TEST(TextStream, TokensBeforeTheStreamAreNotItsText) {
  const auto before = tokenizer().encode("3,7=", false), ids = tokenizer().encode("36", false);
  TextStream stream(tokenizer(), {"=3"});
  stream.begin_after(before);
  std::string all;
  for (const std::int32_t id : ids) all += stream.push(id);
  EXPECT_EQ(all + stream.flush(), "36");  // and no stop string reaches into them
  EXPECT_FALSE(stream.stopped());
}

TEST(TextStream, WithoutStopsItIsTheWholeText) {
  const auto ids = tokenizer().encode("3,7,12=36: caf\xc3\xa9 \xe2\x82\xac", false);
  const Streamed s = stream_of(ids, {});
  EXPECT_EQ(s.text, tokenizer().decode(ids, true));
  EXPECT_FALSE(s.stopped);
}

TEST(TextStream, AStopStringAcrossTokens) {
  const auto ids = tokenizer().encode("1+2=3 so 3*4", false);
  ASSERT_GT(ids.size(), 6u);
  const Streamed s = stream_of(ids, {"3 so"});
  EXPECT_EQ(s.text, "1+2=");
  EXPECT_TRUE(s.stopped);
  EXPECT_LT(s.tokens, ids.size());
  for (const std::string& part : s.parts) EXPECT_EQ(part.find('3'), std::string::npos);  // never shown, even in part
}

TEST(TextStream, TheFirstOfSeveralStops) {
  const auto ids = tokenizer().encode("abcdef", false);
  EXPECT_EQ(stream_of(ids, {"ef", "cd", "zz"}).text, "ab");
  EXPECT_EQ(stream_of(ids, {"cd", "bcde"}).text, "ab");  // the one that is whole first ends the text
}

TEST(TextStream, AnAlmostStopIsGivenBack) {
  const auto ids = tokenizer().encode("aab aac", false);
  EXPECT_EQ(stream_of(ids, {"aad"}).text, "aab aac");
  EXPECT_EQ(stream_of(ids, {""}).text, "aab aac");
  EXPECT_EQ(stream_of(ids, {"caa"}).text, "aab aac");  // its beginning stands at the very end
}

TEST(TextStream, SpecialTokensGiveNoText) {
  const auto eos = tokenizer().token_id("<|eos|>");
  ASSERT_TRUE(eos);
  auto ids = tokenizer().encode("1+1", false);
  ids.push_back(*eos);
  EXPECT_EQ(stream_of(ids, {}).text, "1+1");
}

// A client that stops at token ids may send their names (fireworks-ai does).
TEST(TextStream, TheNameOfATokenWithoutTextStops) {
  auto ids = tokenizer().encode("1+1<|eos|>2", false);
  const Streamed s = stream_of(ids, {"<|eos|>"});
  EXPECT_EQ(s.text, "1+1");
  EXPECT_TRUE(s.stopped);
  EXPECT_EQ(s.tokens + 1, ids.size());
}

TEST(TextStream, CountsCharacters) { EXPECT_EQ(count_characters("a\xc3\xa9\xe2\x82\xac"), 3); }

RC_GTEST_PROP(TextStream, AnyIdsAnyStops, ()) {
  const auto ids = *rc::gen::container<std::vector<std::int32_t>>(rc::gen::inRange(0, 101));
  const auto stops = *rc::gen::container<std::vector<std::string>>(rc::gen::container<std::string>(rc::gen::element('0', '1', '2', '9')));
  const std::string whole = tokenizer().decode(ids, true);
  const Streamed s = stream_of(ids, stops);
  RC_ASSERT(whole.starts_with(s.text));
  if (!s.stopped) RC_ASSERT(s.text == whole);
  for (const std::string& stop : stops)
    if (!stop.empty()) RC_ASSERT(s.text.find(stop) == std::string::npos);
}

}  // namespace
}  // namespace lockstep
