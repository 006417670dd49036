// A pattern of a tokenizer.json, which is written for Oniguruma (Ruby syntax, Unicode), run by PCRE2. Constructs that the
// two read differently are rewritten where that is exact (\s, \w, \uXXXX, scripts) and refused by name where it is not.
// Classes are those of Unicode 14. Thread rule: a Regex is immutable; one object serves any number of threads.
//   for (const Match& m : Regex("\\p{N}{1,3}").find_all("a1234")) ...
#pragma once
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

struct TextRange {
  std::size_t begin, end;  // bytes
};

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

 private:
  struct Compiled;
  std::unique_ptr<Compiled> compiled_;
};

// The pattern as PCRE2 must be given it (exposed for tests).
std::string oniguruma_to_pcre2(std::string_view pattern);

}  // namespace lockstep
