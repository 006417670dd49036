#include "serving/text_stream.h"

#include <algorithm>
#include <utility>

#include "text/utf8.h"

namespace lockstep {

TextStream::TextStream(const Tokenizer& tokenizer, std::vector<std::string> stops, SpecialText special)
    : tokenizer_(&tokenizer), detokenizer_(tokenizer, special == SpecialText::hidden), special_(special), stops_(std::move(stops)) {
  std::erase_if(stops_, [](const std::string& stop) { return stop.empty(); });
}

bool TextStream::hides(std::int32_t id) const {
  if (special_ != SpecialText::reasoning_marks || !tokenizer_->is_special(id)) return false;
  const std::string text = tokenizer_->token_text(id);
  return text != "<think>" && text != "</think>";
}

std::string TextStream::push(std::int32_t id) {
  if (stopped_ || hides(id)) return "";
  return release(detokenizer_.push(id), false);
}

std::string TextStream::flush() {
  if (stopped_) return "";
  return release(detokenizer_.flush(), true);
}

std::string TextStream::release(std::string_view added, bool end) {
  held_ += added;
  // The stop string that is whole first ends the text, however tokens cut it; of two, the longer.
  std::size_t first_begin = 0, first_end = std::string::npos;
  for (const std::string& stop : stops_) {
    const std::size_t begin = held_.find(stop);
    if (begin == std::string::npos) continue;
    const std::size_t end_of_stop = begin + stop.size();
    if (end_of_stop > first_end || (end_of_stop == first_end && begin > first_begin)) continue;
    first_begin = begin;
    first_end = end_of_stop;
  }
  if (first_end != std::string::npos) {
    stopped_ = true;
    held_.resize(first_begin);
    return std::exchange(held_, {});
  }
  // The longest end of the text that begins a stop string waits. Both are valid UTF-8, so no character is cut.
  std::size_t waits = 0;
  for (const std::string& stop : stops_) {
    for (std::size_t n = std::min(stop.size() - 1, held_.size()); n > waits && !end; --n)
      if (held_.ends_with(std::string_view(stop).substr(0, n))) waits = n;
  }
  std::string certain = held_.substr(0, held_.size() - waits);
  held_.erase(0, certain.size());
  return certain;
}

std::string text_of_token(const Tokenizer& tokenizer, std::int32_t id) { return utf8_lossy(tokenizer.token_bytes(id)); }

std::int64_t count_characters(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

}  // namespace lockstep
