// Text of a generation as it becomes certain: whole characters only, and never a part of a stop string. A stop string is found
// wherever it lies across tokens; the text ends before it. Knows token ids and text, nothing of requests.
// One stream, one thread.
//   TextStream stream(tokenizer, {"\n"}); for (id : ids) { send(stream.push(id)); if (stream.stopped()) break; }
//   send(stream.flush());
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer/detokenizer.h"

namespace lockstep {

// Which special tokens give text. Parsers of messages read marks, which many tokenizers hold for special.
enum class SpecialText { hidden, reasoning_marks, shown };

class TextStream {
 public:
  // Empty stop strings are ignored. `tokenizer` outlives this object.
  TextStream(const Tokenizer& tokenizer, std::vector<std::string> stops, SpecialText special = SpecialText::hidden);
  // As Detokenizer's.
  void begin_after(std::span<const std::int32_t> ids) { detokenizer_.begin_after(ids); }
  // What is certain after this token; "" once stopped.
  std::string push(std::int32_t id);
  // The end: what was held back. "" once stopped.
  std::string flush();
  bool stopped() const { return stopped_; }

 private:
  std::string release(std::string_view added, bool end);
  bool hides(std::int32_t id) const;
  const Tokenizer* tokenizer_;
  Detokenizer detokenizer_;
  SpecialText special_;
  std::vector<std::string> stops_;
  std::string held_;  // could still become a stop string
  bool stopped_ = false;
};

// What a token says amid others, by itself: a piece of a character is U+FFFD.
std::string text_of_token(const Tokenizer& tokenizer, std::int32_t id);
// Characters (code points) of valid UTF-8.
std::int64_t count_characters(std::string_view text);

}  // namespace lockstep
