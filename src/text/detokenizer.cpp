#include "text/detokenizer.h"

#include <string_view>
#include <utility>

#include "text/utf8.h"

namespace lockstep {

std::string Detokenizer::push(std::int32_t id) {
  if (skip_special_ && tokenizer_->is_special(id)) return "";
  held_ += tokenizer_->token_bytes(id);
  std::size_t certain = 0;
  while (certain < held_.size()) {
    const Utf8Unit unit = utf8_front(std::string_view(held_).substr(certain));
    if (unit.kind == Utf8Unit::Kind::incomplete) break;
    certain += unit.bytes;
  }
  std::string text = utf8_lossy(std::string_view(held_).substr(0, certain));
  held_.erase(0, certain);
  return text;
}

std::string Detokenizer::flush() { return utf8_lossy(std::exchange(held_, {})); }

}  // namespace lockstep
