#include "text/tokenizer/detokenizer.h"

#include <algorithm>

#include "text/tokenizer/tokenizer_state.h"

namespace lockstep {

Detokenizer::Detokenizer(const Tokenizer& tokenizer, bool skip_special)
    : tokenizer_(&tokenizer), skip_special_(skip_special), stream_(tokenizer.state().decoder) {}

void Detokenizer::begin_after(std::span<const std::int32_t> ids) {
  constexpr std::size_t kMostLookedBack = 8;
  for (const std::int32_t id : ids.last(std::min(ids.size(), kMostLookedBack))) push(id);
}

std::string Detokenizer::push(std::int32_t id) {
  std::string text;
  const std::string_view token = tokenizer_->state().text_of(id);
  if (!token.empty() && !(skip_special_ && tokenizer_->is_special(id))) stream_.push(token, text);
  return text;
}

std::string Detokenizer::flush() {
  std::string text;
  stream_.finish(text);
  return text;
}

}  // namespace lockstep
