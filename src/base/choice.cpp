#include "base/choice.h"

#include <algorithm>

namespace lockstep {

std::string allowed_are(std::string_view got, const std::vector<std::string>& words) {
  return fmt::format("allowed are {}{}", fmt::join(words, ", "), did_you_mean(got, words));
}

void fail_choice(std::string_view name, std::string_view got, const std::vector<std::string>& words, ErrorCode code) {
  fail(code, "{} is '{}', {}", name, got, allowed_are(got, words));
}

std::size_t check_choice(std::string_view name, std::string_view got, const std::vector<std::string>& words, ErrorCode code) {
  const auto place = std::find(words.begin(), words.end(), got);
  if (place == words.end()) fail_choice(name, got, words, code);
  return static_cast<std::size_t>(place - words.begin());
}

}  // namespace lockstep
