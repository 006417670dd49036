#include "text/grammar/pattern.h"

#include <algorithm>
#include <memory>

#include "base/error.h"
#include "text/utf8.h"

namespace lockstep {

namespace {
constexpr std::size_t kMaxPatternBytes = 4096;
constexpr int kMaxDepth = 64;
constexpr int kMaxPatternRepeat = 5000;
constexpr int kEndless = -1;
// Marks before and after the text, so that ^ and $ are symbols like others.
constexpr char32_t kBegin = 0xd800, kEnd = 0xd801;

struct Node {
  enum class Kind { set, sequence, alternatives, repeat } kind = Kind::sequence;
  CodePointSet set;
  std::vector<std::unique_ptr<Node>> parts;
  int least = 1, most = 1;
};
using NodePointer = std::unique_ptr<Node>;

NodePointer set_node(CodePointSet set) {
  auto node = std::make_unique<Node>();
  node->kind = Node::Kind::set;
  node->set = std::move(set);
  return node;
}

CodePointSet ascii_class(char32_t letter) {
  CodePointSet set;
  if (letter == 'd') set.add('0', '9');
  if (letter == 'w') {
    for (const auto& [low, high] : {std::pair{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}) set.add(static_cast<char32_t>(low), static_cast<char32_t>(high));
  }
  if (letter == 's') set.add(9, 13), set.add(' ', ' ');
  return set;
}

// Beyond ASCII it is open what \d, \w and \s hold, so also what they leave; Python counts four controls as space.
CodePointSet outside(CodePointSet set) {
  set.add(0x1c, 0x1f);
  return set.complement().intersected(0, 0x7f);
}

class Parser {
 public:
  explicit Parser(std::u32string text) : text_(std::move(text)) {}
  NodePointer parse() {
    NodePointer node = alternatives(0);
    if (!done()) bad("an unmatched )");
    return node;
  }

 private:
  bool done() const { return at_ >= text_.size(); }
  char32_t peek(std::size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : U'\0'; }
  bool take(char32_t c) {
    if (done() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  [[noreturn]] void bad(std::string_view what) const { fail(ErrorCode::invalid_argument, "the pattern has {} at character {}", what, at_); }
  [[noreturn]] void refuse(std::string_view what) const {
    fail(ErrorCode::unsupported,
         "the pattern uses {} at character {}, supported are literals, classes, groups, alternatives, repeats and "
         "anchors",
         what, at_);
  }

  NodePointer alternatives(int depth) {
    if (depth > kMaxDepth) fail(ErrorCode::resource_exhausted, "the pattern nests deeper than {}", kMaxDepth);
    auto node = std::make_unique<Node>();
    node->kind = Node::Kind::alternatives;
    do {
      auto sequence = std::make_unique<Node>();
      while (!done() && peek() != '|' && peek() != ')') sequence->parts.push_back(repeated(depth));
      node->parts.push_back(std::move(sequence));
    } while (take('|'));
    return node;
  }

  NodePointer repeated(int depth) {
    NodePointer node = atom(depth);
    for (;;) {
      int least = 0, most = kEndless;
      if (take('*')) {
      } else if (take('+')) {
        least = 1;
      } else if (take('?')) {
        most = 1;
      } else if (peek() == '{' && braces(least, most)) {
      } else {
        return node;
      }
      if (peek() == '+') refuse("a possessive repeat");
      take('?');  // lazy: the same language
      auto repeat = std::make_unique<Node>();
      repeat->kind = Node::Kind::repeat;
      repeat->least = least;
      repeat->most = most;
      repeat->parts.push_back(std::move(node));
      node = std::move(repeat);
      if (peek() == '*' || peek() == '+' || peek() == '?') bad("a repeat of a repeat");
    }
  }

  // {m}, {m,} or {m,n}; anything else is a literal brace.
  bool braces(int& least, int& most) {
    std::size_t i = at_ + 1;
    const auto number = [&](int& value) {
      const std::size_t begin = i;
      std::int64_t x = 0;
      for (; i < text_.size() && text_[i] >= '0' && text_[i] <= '9'; ++i)
        x = std::min<std::int64_t>(x * 10 + static_cast<std::int64_t>(text_[i] - '0'), 1 << 30);
      if (i == begin) return false;
      if (x > kMaxPatternRepeat) fail(ErrorCode::resource_exhausted, "the pattern repeats {} times, allowed is at most {}", x, kMaxPatternRepeat);
      value = static_cast<int>(x);
      return true;
    };
    if (i < text_.size() && text_[i] == ',') refuse("a repeat without its lower bound");
    if (!number(least)) return false;
    most = least;
    if (i < text_.size() && text_[i] == ',') {
      ++i;
      if (!number(most)) most = kEndless;
    }
    if (i >= text_.size() || text_[i] != '}') return false;
    if (most != kEndless && most < least) bad("a repeat whose bounds are out of order");
    at_ = i + 1;
    return true;
  }

  NodePointer atom(int depth) {
    const char32_t c = text_[at_];
    if (c == '(') {
      ++at_;
      if (take('?')) {
        if (take(':')) {
        } else if (peek() == '=' || peek() == '!') {
          refuse("look-ahead");
        } else if (peek() == '<' && (peek(1) == '=' || peek(1) == '!')) {
          refuse("look-behind");
        } else if (take('<') || (take('P') && take('<'))) {
          while (!done() && peek() != '>') ++at_;
          if (!take('>')) bad("a group name without an end");
        } else {
          refuse("a group with flags");
        }
      }
      NodePointer inside = alternatives(depth + 1);
      if (!take(')')) bad("a ( without its )");
      return inside;
    }
    ++at_;
    CodePointSet set;
    switch (c) {
      case '*':
      case '+':
      case '?':
        --at_;
        bad("a repeat of nothing");
      case '^':
        return set_node(CodePointSet::marker(kBegin));
      case '$':
        return set_node(CodePointSet::marker(kEnd));
      case '.':
        for (char32_t end : {U'\n', U'\r', U'\u2028', U'\u2029'}) set.add(end, end);
        return set_node(set.complement());
      case '[':
        return set_node(char_class());
      case '\\': {
        bool one = false;
        set = escape(false, one);
        return set_node(std::move(set));
      }
      default:
        set.add(c, c);
        return set_node(std::move(set));
    }
  }

  char32_t hex(int digits) {
    char32_t value = 0;
    for (int i = 0; i < digits; ++i, ++at_) {
      const char32_t c = peek();
      const char32_t lower = c | 0x20;
      if (c >= '0' && c <= '9') value = value * 16 + (c - '0');
      else if (lower >= 'a' && lower <= 'f') value = value * 16 + (lower - 'a' + 10);
      else bad("an escape with too few hexadecimal digits");
    }
    return value;
  }

  // Reads an escape whose backslash was read, and returns the code points that it matches. `one`: set to whether it names one character (\n), which may
  // begin or end a range, and no class (\d).
  CodePointSet escape(bool in_class, bool& one) {
    if (done()) bad("a backslash at its end");
    const char32_t c = text_[at_++];
    CodePointSet set;
    one = true;
    const auto single = [&](char32_t value) {
      set.add(value, value);
      if (set.empty()) refuse("a surrogate");
      return set;
    };
    switch (c) {
      case 'd':
      case 'w':
      case 's':
        one = false;
        return ascii_class(c);
      case 'D':
      case 'W':
      case 'S':
        one = false;
        return outside(ascii_class(c | 0x20));
      case 'n':
        return single('\n');
      case 'r':
        return single('\r');
      case 't':
        return single('\t');
      case 'f':
        return single('\f');
      case 'v':
        return single('\v');
      case '0':
        if (peek() >= '0' && peek() <= '9') refuse("an octal escape");
        return single(0);
      case 'x':
        return single(hex(2));
      case 'u': {
        if (take('{')) {
          char32_t value = 0;
          int digits = 0;
          while (!done() && peek() != '}' && digits++ < 6) value = value * 16 + hex(1);
          if (digits == 0 || digits > 6 || !take('}') || value > CodePointSet::kLast) bad("an escape \\u{...} without a code point");
          return single(value);
        }
        char32_t value = hex(4);
        if (value >= 0xd800 && value <= 0xdbff && peek() == '\\' && peek(1) == 'u') {
          at_ += 2;
          const char32_t low = hex(4);
          if (low < 0xdc00 || low > 0xdfff) refuse("a lone surrogate");
          value = 0x10000 + ((value - 0xd800) << 10) + (low - 0xdc00);
        }
        return single(value);
      }
      case 'b':
        if (in_class) return single('\b');
        [[fallthrough]];
      case 'B':
        refuse("a word boundary");
      case 'p':
      case 'P':
        refuse("a class of Unicode properties");
      case 'c':
      case 'k':
        refuse("\\c or \\k");
      case 'A':
      case 'Z':
      case 'z':
      case 'G':
        refuse("an anchor other than ^ and $");
      default:
        if (c >= '1' && c <= '9') refuse("a back reference");
        if ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') refuse("an unknown escape");
        return single(c);
    }
  }

  CodePointSet char_class() {
    const bool negated = take('^');
    bool with_escapes = false;
    CodePointSet set;
    const auto member = [&](bool& one) {
      if (done()) bad("a [ without its ]");
      const char32_t c = text_[at_++];
      CodePointSet m;
      one = true;
      if (c == '\\') m = escape(true, one);
      else m.add(c, c);
      with_escapes |= !one;
      return m;
    };
    if (peek() == ']') refuse("a class that is empty or begins with ]");
    while (!take(']')) {
      if (done()) bad("a [ without its ]");
      if (peek() == '[' && (peek(1) == ':' || peek(1) == '=')) refuse("a POSIX class");
      bool one = false;
      const CodePointSet low = member(one);
      if (one && peek() == '-' && peek(1) != ']' && at_ + 1 < text_.size()) {
        ++at_;
        bool last_is_one = false;
        const CodePointSet high = member(last_is_one);
        if (last_is_one) {
          const char32_t a = low.ranges()[0].low, b = high.ranges()[0].low;
          if (a > b) bad("a range whose ends are out of order");
          set.add(a, b);
        } else {  // [a-\d]: three members
          set.add(low);
          set.add('-', '-');
          set.add(high);
        }
      } else {
        set.add(low);
      }
    }
    if (!negated) return set;
    return with_escapes ? outside(set) : set.complement();
  }

  std::u32string text_;
  std::size_t at_ = 0;
};

void emit(TextNfa& nfa, const Node& node, int from, int to) {
  switch (node.kind) {
    case Node::Kind::set:
      nfa.connect(from, to, node.set);
      return;
    case Node::Kind::sequence:
      for (const NodePointer& part : node.parts) {
        const int next = nfa.add_state();
        emit(nfa, *part, from, next);
        from = next;
      }
      nfa.connect(from, to);
      return;
    case Node::Kind::alternatives:
      for (const NodePointer& part : node.parts) emit(nfa, *part, from, to);
      return;
    case Node::Kind::repeat: {
      const Node& part = *node.parts[0];
      for (int i = 0; i < node.least; ++i) {
        const int next = nfa.add_state();
        emit(nfa, part, from, next);
        from = next;
      }
      if (node.most == kEndless) {
        const int loop = nfa.add_state(), end = nfa.add_state();
        nfa.connect(from, loop);
        emit(nfa, part, loop, end);
        nfa.connect(end, loop);
        nfa.connect(loop, to);
        return;
      }
      for (int i = node.least; i < node.most; ++i) {
        const int next = nfa.add_state();
        nfa.connect(from, to);
        emit(nfa, part, from, next);
        from = next;
      }
      nfa.connect(from, to);
      return;
    }
  }
}

// The texts between the marks of what `marked` accepts.
TextDfa without_marks(const TextDfa& marked, SchemaWork& work) {
  const auto class_of = [&](char32_t c) {
    return static_cast<std::size_t>(std::upper_bound(marked.starts.begin(), marked.starts.end(), c) - marked.starts.begin()) - 1;
  };
  TextDfa out;
  if (marked.empty() || marked.next[class_of(kBegin)] < 0) return out;
  const std::size_t classes = marked.classes();
  out.starts = marked.starts;
  // The state after the first mark comes first: swap it with state 0, which nothing leads back to.
  const std::int32_t start = marked.next[class_of(kBegin)];
  const auto renamed = [&](std::int32_t s) { return s == start ? 0 : s == 0 ? start : s; };
  const std::size_t n = marked.accepts.size();
  out.next.assign(n * classes, -1);
  out.accepts.assign(n, false);
  for (std::size_t s = 0; s < n; ++s) {
    const auto at = static_cast<std::size_t>(renamed(static_cast<std::int32_t>(s)));
    for (std::size_t c = 0; c < classes; ++c) {
      const std::int32_t t = marked.next[s * classes + c];
      if (marked.starts[c] == kBegin || marked.starts[c] == kEnd) continue;
      out.next[at * classes + c] = t < 0 ? -1 : renamed(t);
    }
    const std::int32_t end = marked.next[s * classes + class_of(kEnd)];
    out.accepts[at] = end >= 0 && marked.accepts[static_cast<std::size_t>(end)];
  }
  return intersect(out, any_text(), work);
}
}  // namespace

TextDfa pattern_dfa(std::string_view pattern, SchemaWork& work) {
  if (pattern.size() > kMaxPatternBytes) fail(ErrorCode::resource_exhausted, "the pattern has {} bytes, allowed are {}", pattern.size(), kMaxPatternBytes);
  if (!utf8_valid(pattern)) fail(ErrorCode::invalid_argument, "the pattern is not valid UTF-8");
  const NodePointer node = Parser(code_points_of(pattern)).parse();
  TextNfa nfa;
  const int start = nfa.add_state(), begin = nfa.add_state(), end = nfa.add_state(), accept = nfa.add_state();
  // It may match anywhere: (mark or character)* pattern (character or mark)*.
  nfa.connect(start, begin);
  for (int around : {begin, end})
    for (const CodePointSet& set : {CodePointSet::all(), CodePointSet::marker(kBegin), CodePointSet::marker(kEnd)}) nfa.connect(around, around, set);
  emit(nfa, *node, begin, end);
  nfa.connect(end, accept);
  return without_marks(determinise(nfa, start, accept, work), work);
}

}  // namespace lockstep
