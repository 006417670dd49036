// Turns generated tokens into text as it becomes certain: whole characters only, and nothing that may be the beginning of a stop string. Stop strings
// are found across tokens, in the text and in the tokens' own bytes (so the name of a special token that has no text counts); the text ends before
// the stop string. Knows token ids and text, nothing of requests. One stream, one thread.
//   TextStream stream(tokenizer, {"\n"}); for (const auto id : ids) { send(stream.push(id)); if (stream.stopped()) break; }
//   send(stream.flush());
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "serving/stop_strings.h"
#include "text/tokenizer/detokenizer.h"

namespace lockstep {

// Which special tokens give text. Parsers of messages read marks, which many tokenizers hold for special.
enum class SpecialText { hidden, reasoning_marks, shown };

class TextStream {
 public:
  // `tokenizer` outlives this object. Streams may share their stop strings.
  TextStream(const Tokenizer& tokenizer, std::shared_ptr<const StopStrings> stops, SpecialText special = SpecialText::hidden);
  TextStream(const Tokenizer& tokenizer, const std::vector<std::string>& stops, SpecialText special = SpecialText::hidden)
      : TextStream(tokenizer, std::make_shared<const StopStrings>(stops), special) {}
  // As Detokenizer's.
  void begin_after(std::span<const std::int32_t> ids) { detokenizer_.begin_after(ids); }
  // What is certain after this token; "" once the text has met a stop string.
  std::string push(std::int32_t id);
  // The end: what was held back. "" once the text has met a stop string.
  std::string flush();
  bool stopped() const { return text_ended_ || tokens_ended_; }

 private:
  std::string release(std::string_view added, bool end);
  bool hides(std::int32_t id) const;
  const Tokenizer* tokenizer_;
  Detokenizer detokenizer_;
  SpecialText special_;
  bool searches_;  // for any stop string
  StopSearch in_text_, in_tokens_;
  std::string held_;  // the end of the text, which could still become a stop string
  bool text_ended_ = false, tokens_ended_ = false;
};

// What a token says amid others, by itself: a piece of a character is U+FFFD.
std::string text_of_token(const Tokenizer& tokenizer, std::int32_t id);
// Characters (code points) of valid UTF-8.
std::int64_t count_characters(std::string_view text);

}  // namespace lockstep
