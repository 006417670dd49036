#include "serving/text_stream.h"

#include <algorithm>
#include <utility>

#include "text/utf8.h"

namespace lockstep {

TextStream::TextStream(const Tokenizer& tokenizer, std::shared_ptr<const StopStrings> stops, SpecialText special)
    : tokenizer_(&tokenizer),
      detokenizer_(tokenizer, special == SpecialText::hidden),
      special_(special),
      searches_(!stops->empty()),
      in_text_(stops),
      in_tokens_(std::move(stops)) {}

bool TextStream::hides(std::int32_t id) const {
  if (special_ != SpecialText::reasoning_marks || !tokenizer_->is_special(id)) return false;
  const std::string text = tokenizer_->token_text(id);
  return text != "<think>" && text != "</think>";
}

std::string TextStream::push(std::int32_t id) {
  if (text_ended_) return "";
  if (searches_) tokens_ended_ = tokens_ended_ || in_tokens_.push(tokenizer_->token_bytes(id));
  if (hides(id)) return "";
  std::string added = detokenizer_.push(id);
  return searches_ ? release(added, false) : added;
}

std::string TextStream::flush() {
  if (text_ended_) return "";
  return release(detokenizer_.flush(), true);
}

std::string TextStream::release(std::string_view added, bool end) {
  held_ += added;
  if (const auto found = in_text_.push(added)) {
    text_ended_ = true;
    held_.resize(held_.size() - (added.size() - found->end) - found->length);
    return std::exchange(held_, {});
  }
  // Both are valid UTF-8, so what waits begins with a whole character.
  std::string certain = held_.substr(0, held_.size() - (end ? 0 : in_text_.waits()));
  held_.erase(0, certain.size());
  return certain;
}

std::string text_of_token(const Tokenizer& tokenizer, std::int32_t id) { return utf8_lossy(tokenizer.token_bytes(id)); }

std::int64_t count_characters(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

}  // namespace lockstep
