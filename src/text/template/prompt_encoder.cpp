#include "text/template/prompt_encoder.h"

#include <algorithm>
#include <string_view>

namespace lockstep {
namespace {
bool touches_untrusted(const std::vector<jinja::ByteRange>& untrusted, std::size_t begin, std::size_t end) {
  const auto range = std::upper_bound(untrusted.begin(), untrusted.end(), begin, [](std::size_t at, const jinja::ByteRange& r) { return at < r.end; });
  return range != untrusted.end() && range->begin < end;
}
}  // namespace

PromptEncoder::PromptEncoder(std::shared_ptr<const Tokenizer> tokenizer) : tokenizer_(std::move(tokenizer)) {
  for (std::int32_t id = 0; id < tokenizer_->vocab_size(); ++id)
    if (tokenizer_->is_special(id)) special_.push_back(tokenizer_->token_text(id));
  std::erase(special_, "");
  std::stable_sort(special_.begin(), special_.end(), [](const auto& a, const auto& b) { return a.size() > b.size(); });
}

std::vector<std::int32_t> PromptEncoder::encode(const RenderedPrompt& prompt) const {
  const std::string_view text = prompt.text;
  // Nobody wrote a special token but the template: the ordinary way, with all its rules (white space that tokens swallow).
  bool forged = false;
  for (const std::string& token : special_)
    for (std::size_t at = text.find(token); !forged && at != std::string_view::npos; at = text.find(token, at + 1))
      forged = touches_untrusted(prompt.untrusted, at, at + token.size());
  if (!forged) return tokenizer_->encode(text, false, true);

  std::vector<std::int32_t> ids;
  const auto append = [&](std::string_view part, bool parse_special) {
    const auto more = tokenizer_->encode(part, false, parse_special);
    ids.insert(ids.end(), more.begin(), more.end());
  };
  std::size_t start = 0, at = 0;
  while (at < text.size()) {
    const auto found = std::find_if(special_.begin(), special_.end(), [&](const std::string& token) {
      return text.substr(at).starts_with(token) && !touches_untrusted(prompt.untrusted, at, at + token.size());
    });
    if (found == special_.end()) {
      ++at;
      continue;
    }
    append(text.substr(start, at - start), false);
    append(text.substr(at, found->size()), true);
    start = at += found->size();
  }
  append(text.substr(start), false);
  return ids;
}

}  // namespace lockstep
