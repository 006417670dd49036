#include "text/grammar/code_point_set.h"

#include <algorithm>

#include "text/utf8.h"

namespace lockstep {

namespace {
constexpr char32_t kFirstSurrogate = 0xd800, kLastSurrogate = 0xdfff;
}  // namespace

CodePointSet CodePointSet::all() {
  CodePointSet set;
  set.add(0, kFirstSurrogate - 1);
  set.add(kLastSurrogate + 1, kLast);
  return set;
}

CodePointSet CodePointSet::marker(char32_t surrogate) {
  CodePointSet set;
  set.ranges_ = {{surrogate, surrogate}};
  return set;
}

std::u32string code_points_of(std::string_view utf8) {
  std::u32string text;
  while (!utf8.empty()) {
    const Utf8Unit unit = utf8_front(utf8);
    text.push_back(unit.kind == Utf8Unit::Kind::character ? static_cast<char32_t>(unit.codepoint) : U'\ufffd');
    utf8.remove_prefix(unit.bytes);
  }
  return text;
}

void CodePointSet::add(char32_t low, char32_t high) {
  const auto add_range = [this](char32_t a, char32_t b) {
    if (a > b) return;
    // Everything that touches [a, b] melts into one range.
    const auto first = std::find_if(ranges_.begin(), ranges_.end(), [&](const CodePointRange& r) { return r.high + 1 >= a; });
    auto last = first;
    for (; last != ranges_.end() && last->low <= b + 1; ++last) {
      a = std::min(a, last->low);
      b = std::max(b, last->high);
    }
    ranges_.insert(ranges_.erase(first, last), {a, b});
  };
  add_range(low, std::min<char32_t>(high, kFirstSurrogate - 1));
  add_range(std::max<char32_t>(low, kLastSurrogate + 1), std::min(high, kLast));
}

void CodePointSet::add(const CodePointSet& other) {
  for (const CodePointRange& r : other.ranges_) add(r.low, r.high);
}

CodePointSet CodePointSet::complement() const {
  CodePointSet set;
  char32_t from = 0;
  for (const CodePointRange& r : ranges_) {
    if (r.low > from) set.add(from, r.low - 1);
    from = r.high + 1;
  }
  if (from <= kLast) set.add(from, kLast);
  return set;
}

CodePointSet CodePointSet::intersected(char32_t low, char32_t high) const {
  CodePointSet set;
  for (const CodePointRange& r : ranges_)
    if (r.high >= low && r.low <= high) set.add(std::max(r.low, low), std::min(r.high, high));
  return set;
}

bool CodePointSet::contains(char32_t c) const {
  return std::any_of(ranges_.begin(), ranges_.end(), [&](const CodePointRange& r) { return r.low <= c && c <= r.high; });
}

}  // namespace lockstep
