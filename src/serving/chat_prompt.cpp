#include "serving/chat_prompt.h"

#include <algorithm>
#include <span>

namespace lockstep {

bool prompt_opens_reasoning(const Tokenizer& tokenizer, const std::vector<std::int32_t>& prompt) {
  constexpr std::size_t kMarkerTokens = 16;  // more than <think> and the white space behind it ever take
  std::string end = tokenizer.decode(std::span(prompt).last(std::min(prompt.size(), kMarkerTokens)), false);
  end.erase(end.find_last_not_of(" \n\r\t") + 1);
  return end.ends_with("<think>");
}

}  // namespace lockstep
