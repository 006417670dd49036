// A set of Unicode code points as sorted ranges: a character class of a pattern.
//   CodePointSet digits; digits.add('0', '9'); CodePointSet others = digits.complement();
// Knows no encoding. Plain value; any thread.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

struct CodePointRange {
  char32_t low = 0, high = 0;  // both included
  bool operator==(const CodePointRange&) const = default;
};

class CodePointSet {
 public:
  static constexpr char32_t kLast = 0x10ffff;
  static CodePointSet all();  // every code point but surrogates, which no UTF-8 text holds
  // A lone surrogate, which no add() includes: a marker symbol in an automaton.
  static CodePointSet marker(char32_t surrogate);

  void add(char32_t low, char32_t high);
  void add(const CodePointSet& other);
  CodePointSet complement() const;  // within all()
  CodePointSet intersected(char32_t low, char32_t high) const;
  bool contains(char32_t c) const;
  bool empty() const { return ranges_.empty(); }
  const std::vector<CodePointRange>& ranges() const& { return ranges_; }  // ascending, apart
  std::vector<CodePointRange> ranges() && { return std::move(ranges_); }

 private:
  std::vector<CodePointRange> ranges_;
};

// Of valid UTF-8; broken bytes become U+FFFD.
std::u32string code_points_of(std::string_view utf8);

}  // namespace lockstep
