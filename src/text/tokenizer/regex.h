// A pattern of a tokenizer.json, which is written for Oniguruma (Ruby syntax, Unicode), run by PCRE2. Constructs that the
// two read differently are rewritten where that is exact (\s, \w, \uXXXX, scripts) and refused by name where it is not.
// Classes are those of Unicode 14. Thread rule: a Regex is immutable; one object serves any number of threads.
//   Regex("\\p{N}{1,3}").for_each("a1234", [&](const TextRange& match) { ... });
#pragma once
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/text_range.h"

namespace lockstep {

class Regex {
 public:
  // invalid_argument or unsupported when the pattern is malformed or uses what is not offered.
  explicit Regex(std::string_view pattern);
  ~Regex();
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;

  // All matches in order, without overlap, as Oniguruma's scan gives them: an empty match counts unless it touches the
  // end of the one before. `text` is valid UTF-8. resource_exhausted when the pattern backtracks without end.
  std::vector<TextRange> find_all(std::string_view text) const;
  // The same matches one by one: on_match(TextRange), which may itself use any Regex.
  template <class F>
  void for_each(std::string_view text, F&& on_match) const {
    TextRange match;
    std::size_t last_end = npos;
    for (std::size_t from = 0; from <= text.size() && find(text, from, match);) {
      if (match.begin == match.end && match.end == last_end) {
        from = next_character(text, match.end);
        continue;
      }
      from = last_end = match.end;
      on_match(match);
    }
  }
  // The first match at or behind `from`.
  bool find(std::string_view text, std::size_t from, TextRange& match) const;

 private:
  static constexpr std::size_t npos = static_cast<std::size_t>(-1);
  static std::size_t next_character(std::string_view text, std::size_t at);
  struct Compiled;
  std::unique_ptr<Compiled> compiled_;
};

// The pattern as PCRE2 must be given it (exposed for tests).
std::string oniguruma_to_pcre2(std::string_view pattern);

}  // namespace lockstep
