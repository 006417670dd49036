#include "text/grammar/json_text.h"

#include <fmt/format.h>

#include "text/utf8.h"

namespace lockstep {

void JsonText::utf8(char32_t low, char32_t high, std::vector<Sequence>& out) {
  // Split until both ends have as many bytes and all bytes after the first that differs run over their whole range.
  for (char32_t last : {0x7fu, 0x7ffu, 0xffffu})
    if (low <= last && high > last) return utf8(low, last, out), utf8(last + 1, high, out);
  if (high <= 0x7f) {
    out.push_back({{static_cast<std::uint8_t>(low), static_cast<std::uint8_t>(high)}});
    return;
  }
  for (int bits = 6; bits <= 18; bits += 6) {
    const char32_t mask = (1u << bits) - 1;
    if ((low & ~mask) == (high & ~mask)) break;
    if ((low & mask) != 0) return utf8(low, low | mask, out), utf8((low | mask) + 1, high, out);
    if ((high & mask) != mask) return utf8(low, (high & ~mask) - 1, out), utf8(high & ~mask, high, out);
  }
  std::string a, b;
  utf8_append(a, low);
  utf8_append(b, high);
  Sequence sequence;
  for (std::size_t i = 0; i < a.size(); ++i) sequence.emplace_back(static_cast<std::uint8_t>(a[i]), static_cast<std::uint8_t>(b[i]));
  out.push_back(std::move(sequence));
}

void JsonText::sequences(CodePointRange range, bool escape, std::vector<Sequence>& out) const {
  CodePointSet raw;
  raw.add(range.low, range.high);
  if (escape) {
    CodePointSet escaped;
    escaped.add(0, 0x1f);
    escaped.add('"', '"');
    escaped.add('\\', '\\');
    if (escape_less_than_) escaped.add('<', '<');
    for (char32_t c = range.low; c <= std::min<char32_t>(range.high, '\\'); ++c) {
      if (!escaped.contains(c)) continue;
      Sequence sequence;
      for (char byte : dumped(std::string(1, static_cast<char>(c)))) sequence.emplace_back(static_cast<std::uint8_t>(byte), static_cast<std::uint8_t>(byte));
      out.emplace_back(sequence.begin() + 1, sequence.end() - 1);  // without the quotes
    }
    CodePointSet plain;
    for (const CodePointRange& r : escaped.complement().ranges()) plain.add(raw.intersected(r.low, r.high));
    raw = plain;
  }
  for (const CodePointRange& r : raw.ranges()) utf8(r.low, r.high, out);
}

void JsonText::automaton(int rule, int from, int to, const TextDfa& dfa, bool escape) {
  if (dfa.empty()) return;
  std::vector<int> places{from};
  for (std::size_t s = 1; s < dfa.accepts.size(); ++s) places.push_back(builder_.add_state(rule));
  // State 0 may be come back to, which `from` may not: then it has a twin.
  const bool returns = std::find(dfa.next.begin(), dfa.next.end(), 0) != dfa.next.end();
  if (returns) {
    places[0] = builder_.add_state(rule);
    builder_.epsilon(rule, from, places[0]);
  }
  // What remains of a sequence before a state is shared by all that end alike.
  std::map<std::pair<int, Sequence>, int> tails;
  const auto tail = [&](int target, const Sequence& rest) {
    int at = target;
    for (std::size_t i = rest.size(); i-- > 1;) {
      const auto [it, added] = tails.emplace(std::pair{target, Sequence(rest.begin() + static_cast<std::ptrdiff_t>(i), rest.end())}, 0);
      if (added) {
        it->second = builder_.add_state(rule);
        builder_.bytes(rule, it->second, at, rest[i].first, rest[i].second);
      }
      at = it->second;
    }
    return at;
  };
  // Sequences of a class, once.
  std::vector<std::vector<Sequence>> spelled(dfa.classes());
  for (std::size_t c = 0; c < dfa.classes(); ++c) {
    const char32_t last = c + 1 < dfa.classes() ? dfa.starts[c + 1] - 1 : CodePointSet::kLast;
    sequences({dfa.starts[c], last}, escape, spelled[c]);
  }
  for (std::size_t s = 0; s < dfa.accepts.size(); ++s) {
    if (dfa.accepts[s]) builder_.epsilon(rule, places[s], to);
    for (std::size_t c = 0; c < dfa.classes(); ++c) {
      const std::int32_t t = dfa.next[s * dfa.classes() + c];
      if (t < 0) continue;
      for (const Sequence& sequence : spelled[c])
        builder_.bytes(rule, places[s], tail(places[static_cast<std::size_t>(t)], sequence), sequence[0].first, sequence[0].second);
    }
  }
}

void JsonText::string_of(int rule, int from, int to, const TextDfa& dfa) {
  const int open = builder_.add_state(rule), close = builder_.add_state(rule);
  builder_.text(rule, from, open, "\"");
  automaton(rule, open, close, dfa, true);
  builder_.text(rule, close, to, "\"");
}

void JsonText::bare(int rule, int from, int to, const TextDfa& dfa) { automaton(rule, from, to, dfa, false); }

std::string JsonText::dumped(const nlohmann::ordered_json& value) const {
  std::string text = value.dump();
  if (!escape_less_than_) return text;
  for (std::size_t at = text.find('<'); at != std::string::npos; at = text.find('<', at)) text.replace(at, 1, "\\u003c");
  return text;
}

void JsonText::quoted(int rule, int from, int to, const std::string& text) { builder_.text(rule, from, to, dumped(text)); }

void JsonText::space(int rule, int from, int to) {
  builder_.epsilon(rule, from, to);
  builder_.text(rule, from, to, " ");
}

void JsonText::value(int rule, int from, int to, const nlohmann::ordered_json& value) {
  if (!value.is_structured()) return builder_.text(rule, from, to, dumped(value));
  const bool object = value.is_object();
  int at = builder_.add_state(rule);
  builder_.text(rule, from, at, object ? "{" : "[");
  bool first = true;
  for (auto it = value.begin(); it != value.end(); ++it) {
    if (!first) {
      const int comma = builder_.add_state(rule), next = builder_.add_state(rule);
      builder_.text(rule, at, comma, ",");
      space(rule, comma, next);
      at = next;
    }
    first = false;
    if (object) {
      const int colon = builder_.add_state(rule), next = builder_.add_state(rule);
      builder_.text(rule, at, colon, dumped(it.key()) + ":");
      space(rule, colon, next);
      at = next;
    }
    const int after = builder_.add_state(rule);
    this->value(rule, at, after, *it);
    at = after;
  }
  builder_.text(rule, at, to, object ? "}" : "]");
}

int JsonText::plain_string(std::int64_t low, std::int64_t high) {
  const auto [it, added] = strings_.emplace(std::pair{low, high}, 0);
  if (!added) return it->second;
  const int rule = it->second = builder_.add_rule();
  builder_.set_count(rule, low, high);
  const int body = builder_.add_state(rule);
  builder_.text(rule, MachineBuilder::kStart, body, "\"");
  builder_.bytes(rule, body, MachineBuilder::kAccept, '"', '"', Machine::kNeedsMinimum);
  // A character counts with its last byte; none begins where no more are allowed.
  const auto character = [&](const Sequence& sequence) {
    int at = body;
    for (std::size_t i = 0; i < sequence.size(); ++i) {
      const bool last = i + 1 == sequence.size();
      const int next = last ? body : builder_.add_state(rule);
      const auto guards = (i == 0 ? Machine::kBelowMaximum : 0) | (last ? Machine::kCounts : 0);
      builder_.bytes(rule, at, next, sequence[i].first, sequence[i].second, static_cast<std::uint8_t>(guards));
      at = next;
    }
  };
  CodePointSet quoted;
  quoted.add(0, 0x1f);
  quoted.add('"', '"');
  quoted.add('\\', '\\');
  if (escape_less_than_) quoted.add('<', '<');
  std::vector<Sequence> spelled;
  for (const CodePointRange& r : quoted.complement().ranges()) utf8(r.low, r.high, spelled);
  for (const Sequence& sequence : spelled) character(sequence);
  const int escape = builder_.add_state(rule), unicode = builder_.add_state(rule);
  builder_.bytes(rule, body, escape, '\\', '\\', Machine::kBelowMaximum);
  for (char c : std::string("\"\\/bfnrt")) builder_.bytes(rule, escape, body, static_cast<std::uint8_t>(c), static_cast<std::uint8_t>(c), Machine::kCounts);
  builder_.text(rule, escape, unicode, "u");
  const auto digits = [&](int from, int to, std::string_view allowed, std::uint8_t guards = 0) {
    for (char c : allowed) builder_.bytes(rule, from, to, static_cast<std::uint8_t>(c), static_cast<std::uint8_t>(c), guards);
  };
  constexpr std::string_view kHex = "0123456789abcdefABCDEF";
  const int three = builder_.add_state(rule), two = builder_.add_state(rule), one = builder_.add_state(rule);
  digits(unicode, three, "0123456789abcefABCEF");
  digits(three, two, kHex);
  digits(two, one, kHex);
  digits(one, body, kHex, Machine::kCounts);
  const int d = builder_.add_state(rule);
  digits(unicode, d, "dD");
  digits(d, two, "01234567");
  const int high_two = builder_.add_state(rule), high_one = builder_.add_state(rule), pair = builder_.add_state(rule), low_u = builder_.add_state(rule),
            low_d = builder_.add_state(rule), low_three = builder_.add_state(rule);
  digits(d, high_two, "89abAB");
  digits(high_two, high_one, kHex);
  digits(high_one, pair, kHex);
  builder_.text(rule, pair, low_u, "\\u");
  digits(low_u, low_d, "dD");
  digits(low_d, low_three, "cdefCDEF");
  digits(low_three, one, kHex);
  return rule;
}

}  // namespace lockstep
