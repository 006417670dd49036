#include "text/grammar/numbers.h"

#include <algorithm>
#include <functional>
#include <map>
#include <tuple>

#include "base/error.h"
#include "text/grammar/pattern.h"

namespace lockstep {

using nlohmann::ordered_json;

namespace {
constexpr int kBoundedDigits = 15;
constexpr int kBefore = -1, kEqual = 0, kAfter = 1;

// A non-negative decimal as digits: 12.5 is {"12", "5"}.
struct Decimal {
  bool negative = false;
  std::string whole, fraction;
  bool zero() const { return whole == "0" && fraction.empty(); }
};

Decimal decimal_of(const ordered_json& value) {
  std::string text = value.dump();
  Decimal d;
  if (text[0] == '-') d.negative = true, text.erase(0, 1);
  int exponent = 0;
  if (const std::size_t e = text.find_first_of("eE"); e != std::string::npos) {
    exponent = std::stoi(text.substr(e + 1));
    text.resize(e);
  }
  const std::size_t dot = text.find('.');
  std::string digits = text;
  int point = static_cast<int>(text.size());
  if (dot != std::string::npos) digits.erase(dot, 1), point = static_cast<int>(dot);
  point += exponent;
  if (point < 0) digits.insert(0, static_cast<std::size_t>(-point), '0'), point = 0;
  if (point > static_cast<int>(digits.size())) digits.append(static_cast<std::size_t>(point) - digits.size(), '0');
  d.whole = digits.substr(0, static_cast<std::size_t>(point));
  d.fraction = digits.substr(static_cast<std::size_t>(point));
  d.whole.erase(0, std::min(d.whole.find_first_not_of('0'), d.whole.size()));
  while (!d.fraction.empty() && d.fraction.back() == '0') d.fraction.pop_back();
  if (d.whole.empty()) d.whole = "0";
  if (d.zero()) d.negative = false;
  return d;
}

int compare_magnitude(const Decimal& a, const Decimal& b) {
  if (a.whole.size() != b.whole.size()) return a.whole.size() < b.whole.size() ? -1 : 1;
  const int whole = a.whole.compare(b.whole);
  if (whole != 0) return whole < 0 ? -1 : 1;
  const int fraction = a.fraction.compare(b.fraction);  // '5' < '50', and no fraction ends in 0
  return fraction < 0 ? -1 : fraction > 0 ? 1 : 0;
}

// A hand-made automaton over the characters - . 0..9: states are added as they are met.
struct Builder {
  TextDfa dfa;
  static constexpr std::size_t kPoint = 2;
  Builder() {
    dfa.starts = {0, U'-', U'.', U'.' + 1};
    for (char32_t c = '0'; c <= '9' + 1; ++c) dfa.starts.push_back(c);
  }
  static std::size_t digit(int d) { return 4 + static_cast<std::size_t>(d); }
  int add(bool accepts) {
    dfa.accepts.push_back(accepts);
    dfa.next.insert(dfa.next.end(), dfa.classes(), -1);
    return static_cast<int>(dfa.accepts.size()) - 1;
  }
  void go(int from, std::size_t cls, int to) { dfa.next[static_cast<std::size_t>(from) * dfa.classes() + cls] = to; }
};

// Texts of magnitudes on one side of a bound: without sign, at most `digits` digits in all, a fraction where
// `fraction`. side kAfter: >= bound (> where exclusive); kBefore: <= or <.
TextDfa magnitudes(const Decimal& bound, int side, bool exclusive, int digits, bool fraction, SchemaWork& work) {
  // A text is compared as it is read. Its whole part has one digit or begins with 1..9, so a length decides where
  // lengths differ: for each length of the whole part one chain of states.
  Builder b;
  const int start = b.add(false);
  const auto right = [&](int order) { return order == side || (order == kEqual && !exclusive); };
  const auto fraction_digit = [&](int place) {
    return place < static_cast<int>(bound.fraction.size()) ? bound.fraction[static_cast<std::size_t>(place)] - '0' : 0;
  };
  // After the whole part: order so far, fraction digits read. The text may end where the comparison with the rest is
  // right.
  struct Key {
    int order, read, left;
    bool operator<(const Key& o) const { return std::tie(order, read, left) < std::tie(o.order, o.read, o.left); }
  };
  std::map<Key, int> tails;
  const auto final_order = [&](int order, int read) {
    if (order != kEqual) return order;
    return read < static_cast<int>(bound.fraction.size()) ? kBefore : kEqual;  // the rest of the bound is not zero
  };
  // States in the fraction: at least one digit is needed after the point.
  const std::function<int(Key)> tail = [&](Key key) {
    if (key.read > static_cast<int>(bound.fraction.size())) key.read = static_cast<int>(bound.fraction.size());
    const auto it = tails.find(key);
    if (it != tails.end()) return it->second;
    const int state = b.add(right(final_order(key.order, key.read)));
    tails[key] = state;
    for (int d = 0; d <= 9 && key.left > 0; ++d) {
      const int want = fraction_digit(key.read);
      const int order = key.order != kEqual ? key.order : d < want ? kBefore : d > want ? kAfter : kEqual;
      b.go(state, Builder::digit(d), tail({order, key.read + 1, key.left - 1}));
    }
    return state;
  };
  const auto point = [&](int state, int order, int left) {  // the whole part may end in `state`
    if (!fraction || left <= 0) return;
    const int after = b.add(false);
    b.go(state, Builder::kPoint, after);
    for (int d = 0; d <= 9; ++d) {
      const int want = fraction_digit(0);
      const int next = order != kEqual ? order : d < want ? kBefore : d > want ? kAfter : kEqual;
      b.go(after, Builder::digit(d), tail({next, 1, left - 1}));
    }
  };
  // One automaton cannot know the length of the whole part beforehand, so it keeps the order against every prefix:
  // state = (digits read, order of them against the bound's first as many digits).
  const int whole = static_cast<int>(bound.whole.size());
  std::map<std::pair<int, int>, int> states;
  const auto order_at_end = [&](int read, int order) { return read < whole ? kBefore : read > whole ? kAfter : order; };
  const std::function<int(int, int, bool)> digits_read = [&](int read, int order, bool zero) -> int {
    const std::pair<int, int> key{zero ? -1 : read, order};
    const auto it = states.find(key);
    if (it != states.end()) return it->second;
    const int at_end = order_at_end(read, order);
    const int state = b.add(right(final_order(at_end, 0)));
    states[key] = state;
    point(state, at_end, digits - read);
    for (int d = 0; d <= 9 && !zero && read < digits; ++d) {
      const int want = read < whole ? bound.whole[static_cast<std::size_t>(read)] - '0' : 0;
      const int next = read >= whole ? kAfter : order != kEqual ? order : d < want ? kBefore : d > want ? kAfter : kEqual;
      b.go(state, Builder::digit(d), digits_read(read + 1, next, false));
    }
    return state;
  };
  for (int d = 0; d <= 9; ++d) {
    const int want = bound.whole[0] - '0';
    b.go(start, Builder::digit(d), digits_read(1, d < want ? kBefore : d > want ? kAfter : kEqual, d == 0));
  }
  return intersect(b.dfa, any_text(), work);
}

// A minus sign before what `magnitudes` accepts, which itself reads none.
TextDfa negated(const TextDfa& magnitudes) {
  TextDfa out;
  if (magnitudes.empty()) return out;
  out.starts.clear();
  const std::vector<char32_t> sign{U'-', U'-' + 1};
  std::set_union(magnitudes.starts.begin(), magnitudes.starts.end(), sign.begin(), sign.end(), std::back_inserter(out.starts));
  for (char32_t start : out.starts) out.next.push_back(start == U'-' ? 1 : -1);
  for (std::size_t s = 0; s < magnitudes.accepts.size(); ++s)
    for (char32_t start : out.starts) {
      const auto old = std::upper_bound(magnitudes.starts.begin(), magnitudes.starts.end(), start) - magnitudes.starts.begin() - 1;
      const std::int32_t t = magnitudes.next[s * magnitudes.classes() + static_cast<std::size_t>(old)];
      out.next.push_back(t < 0 ? -1 : t + 1);
    }
  out.accepts.push_back(false);
  out.accepts.insert(out.accepts.end(), magnitudes.accepts.begin(), magnitudes.accepts.end());
  return out;
}

TextDfa united(const TextDfa& a, const TextDfa& b, SchemaWork& work) {
  if (a.empty()) return b;
  if (b.empty()) return a;
  // a + (b - a), as complements are at hand: not(not a and not b).
  const TextDfa all = any_text();
  return subtract(all, subtract(subtract(all, a, work), b, work), work);
}

std::string pattern_of_digits(int digits) { return fmt::format("(0|[1-9][0-9]{{0,{}}})", digits - 1); }
}  // namespace

int compare_numbers(const ordered_json& a, const ordered_json& b) {
  const Decimal x = decimal_of(a), y = decimal_of(b);
  if (x.negative != y.negative) return x.negative ? -1 : 1;
  const int order = compare_magnitude(x, y);
  return x.negative ? -order : order;
}

namespace {
// floor or ceiling of a decimal, moved by one where it is excluded.
std::optional<std::int64_t> rounded(const NumberBound& bound, bool up) {
  const Decimal d = decimal_of(bound.value);
  if (d.whole.size() > 18) return std::nullopt;
  std::int64_t value = std::stoll(d.whole);
  if (d.negative) value = -value;
  if (!d.fraction.empty()) return up ? (d.negative ? value : value + 1) : (d.negative ? value - 1 : value);
  return bound.exclusive ? (up ? value + 1 : value - 1) : value;
}
}  // namespace

std::optional<std::int64_t> integer_from(const NumberBound& low) { return rounded(low, true); }
std::optional<std::int64_t> integer_to(const NumberBound& high) { return rounded(high, false); }

TextDfa integer_dfa(const IntegerRange& range, SchemaWork& work) {
  const auto bound_of = [](std::int64_t value) { return decimal_of(ordered_json(value < 0 ? -value : value)); };
  TextDfa positive = pattern_dfa("^" + pattern_of_digits(kMaxDigits) + "$", work);
  TextDfa negative = pattern_dfa(fmt::format("^[1-9][0-9]{{0,{}}}$", kMaxDigits - 1), work);  // -0 is left out
  const auto keep = [&](TextDfa& side, std::int64_t value, int which) {
    side = intersect(side, magnitudes(bound_of(value), which, false, kMaxDigits, false, work), work);
  };
  if (range.low) {
    if (*range.low >= 0) negative = {}, keep(positive, *range.low, kAfter);
    else if (!negative.empty()) keep(negative, *range.low, kBefore);
  }
  if (range.high) {
    if (*range.high < 0) {
      positive = {};
      if (!negative.empty()) keep(negative, *range.high, kAfter);
    } else if (!positive.empty()) {
      keep(positive, *range.high, kBefore);
    }
  }
  if (range.multiple > 1) {
    Builder b;
    for (std::int64_t r = 0; r <= range.multiple; ++r) b.add(r == 1);  // the first is the beginning, then one a rest
    for (std::int64_t r = 0; r <= range.multiple; ++r)
      for (int d = 0; d <= 9; ++d) b.go(static_cast<int>(r), Builder::digit(d), static_cast<int>(((r == 0 ? 0 : r - 1) * 10 + d) % range.multiple) + 1);
    if (!positive.empty()) positive = intersect(positive, b.dfa, work);
    if (!negative.empty()) negative = intersect(negative, b.dfa, work);
  }
  return united(positive, negative.empty() ? negative : negated(negative), work);
}

TextDfa number_dfa(const std::optional<NumberBound>& low, const std::optional<NumberBound>& high, SchemaWork& work) {
  if (!low && !high)
    return pattern_dfa(fmt::format("^-?({}(\\.[0-9]{{1,{}}})?|[0-9](\\.[0-9]{{1,{}}})?[eE][+-]?([0-9]{{1,2}}|[12][0-9]{{2}}|30[0-7]))$",
                                   pattern_of_digits(kMaxDigits), kMaxDigits, kMaxDigits),
                       work);
  std::optional<Decimal> bounds[2];
  for (int i = 0; i < 2; ++i) {
    const std::optional<NumberBound>& bound = i == 0 ? low : high;
    if (!bound) continue;
    bounds[i] = decimal_of(bound->value);
    if (bounds[i]->whole.size() > static_cast<std::size_t>(kBoundedDigits) || bounds[i]->fraction.size() > 300)
      fail(ErrorCode::unsupported, "the bound {} has too many digits, supported are up to {} before the point", bound->value.dump(), kBoundedDigits);
  }
  const Decimal zero{false, "0", ""};
  const auto side = [&](const Decimal& d, int which, bool exclusive) { return magnitudes(d, which, exclusive, kBoundedDigits, true, work); };
  TextDfa positive = side(zero, kAfter, false), negative = positive;  // -0 is a number, equal to 0
  if (low) {
    const Decimal& d = *bounds[0];
    if (d.negative) negative = intersect(negative, side(d, kBefore, low->exclusive), work);
    else if (!d.zero() || low->exclusive) negative = {}, positive = intersect(positive, side(d, kAfter, low->exclusive), work);
    else negative = {};
  }
  if (high) {
    const Decimal& d = *bounds[1];
    if (d.negative || (d.zero() && high->exclusive)) positive = {};
    else if (!positive.empty()) positive = intersect(positive, side(d, kBefore, high->exclusive), work);
    if (!negative.empty() && (d.negative || (d.zero() && high->exclusive))) negative = intersect(negative, side(d, kAfter, high->exclusive), work);
  }
  return united(positive, negative.empty() ? negative : negated(negative), work);
}

}  // namespace lockstep
