#include "text/message/call_reader.h"

#include <algorithm>
#include <cctype>

#include "base/ascii.h"

namespace lockstep {

bool is_text_space(char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; }

std::size_t count_space(std::string_view text) { return static_cast<std::size_t>(std::find_if_not(text.begin(), text.end(), is_text_space) - text.begin()); }

std::string name_in(std::string_view text) {
  constexpr std::size_t kMostNameBytes = 256;
  text = trimmed(text);
  if (text.size() > kMostNameBytes || text.find_first_of("<>{}\"\n") != std::string_view::npos) return {};
  return std::string(text);
}

Match match_word(std::string_view text, std::string_view word) {
  if (text.starts_with(word)) return Match::yes;
  return text.size() < word.size() && word.starts_with(text) ? Match::maybe : Match::no;
}

std::size_t partial_word(std::string_view text, std::string_view word) {
  for (std::size_t at = text.size() - std::min(text.size(), word.size() - 1); at < text.size(); ++at)
    if (word.starts_with(text.substr(at))) return at;
  return text.size();
}

}  // namespace lockstep
