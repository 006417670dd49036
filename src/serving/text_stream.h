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

// Which special tokens become text. Parsers of messages read marks that many tokenizers count as special.
enum class SpecialText { hidden, reasoning_marks, shown };

class TextStream {
 public:
  // `tokenizer` outlives this object. Streams may share their stop strings.
  TextStream(const Tokenizer& tokenizer, std::shared_ptr<const StopStrings> stops, SpecialText special = SpecialText::hidden);
  TextStream(const Tokenizer& tokenizer, const std::vector<std::string>& stops, SpecialText special = SpecialText::hidden)
      : TextStream(tokenizer, std::make_shared<const StopStrings>(stops), special) {}
  // As Detokenizer's.
  void begin_after(std::span<const std::int32_t> ids) { detokenizer_.begin_after(ids); }
  // The text that has become certain with this token; "" after a stop string.
  std::string push(std::int32_t id);
  // The rest of the text, at its end; "" after a stop string.
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
  std::string held_;  // the end of the text, which may begin a stop string
  bool text_ended_ = false, tokens_ended_ = false;
};

// The text of one token by itself; a part of a character becomes U+FFFD.
std::string text_of_token(const Tokenizer& tokenizer, std::int32_t id);
// Characters (code points) of valid UTF-8.
std::int64_t count_characters(std::string_view text);

}  // namespace lockstep
