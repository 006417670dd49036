#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/tokenizer/regex.h"

#include <pcre2.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "base/error.h"
#include "text/utf8.h"

namespace lockstep {
namespace {
constexpr std::size_t kMaxPattern = 1 << 16;
constexpr std::uint32_t kMatchLimit = 50'000'000;  // steps of one match
constexpr std::uint32_t kHeapLimitKib = 256 * 1024;

// Walks a pattern once, copying it with the differences rewritten.
class Translator {
 public:
  explicit Translator(std::string_view pattern) : pattern_(pattern) {}

  std::string run() {
    while (at_ < pattern_.size()) {
      const char c = pattern_[at_];
      if (c == '\\') {
        escape();
      } else if (in_class_) {
        class_character(c);
      } else if (c == '[') {
        if (intersection()) continue;
        in_class_ = true;
        class_start_ = true;
        copy(1);
        if (peek() == '^') copy(1);
      } else if (c == '(' && peek(1) == '?') {
        group();
      } else if (c == '(' && peek(1) == '*') {
        refuse("the verb (*");
      } else if (c == '{') {
        interval();
      } else {
        copy(1);
      }
    }
    return std::move(out_);
  }

 private:
  char peek(std::size_t ahead = 0) const { return at_ + ahead < pattern_.size() ? pattern_[at_ + ahead] : '\0'; }
  void copy(std::size_t count) {
    out_ += pattern_.substr(at_, count);
    at_ = std::min(at_ + count, pattern_.size());
  }
  void replace(std::size_t count, std::string_view with) {
    out_ += with;
    at_ = std::min(at_ + count, pattern_.size());
  }
  [[noreturn]] void refuse(std::string_view construct) const {
    fail(ErrorCode::unsupported, "pattern '{}' uses {}, which is not supported", pattern_, construct);
  }

  void class_character(char c) {
    if (c == ']' && !class_start_) in_class_ = false;
    if (c == '[') {
      if (peek(1) != ':') refuse("a class inside a class");
      refuse("a POSIX class ([:name:])");
    }
    if (c == '&' && peek(1) == '&') refuse("the intersection && of classes");
    class_start_ = false;
    copy(1);
  }

  // [A&&[^B]] and [A&&[B]], as rank files' patterns have them, become a look ahead in front of [A].
  bool intersection() {
    constexpr std::string_view kAnd = "&&[";
    const std::size_t close = end_of_class(at_ + 1);
    if (close == std::string_view::npos || close + kAnd.size() > pattern_.size() || pattern_.substr(close, kAnd.size()) != kAnd) return false;
    const std::size_t inner = close + kAnd.size();
    const std::size_t inner_close = end_of_class(inner);
    if (inner_close == std::string_view::npos || pattern_.substr(inner_close, 2) != "]]") refuse("the intersection && of classes");
    const bool negated = pattern_[inner] == '^';
    const std::string_view left = pattern_.substr(at_, close - at_);
    const std::string_view right = pattern_.substr(inner + negated, inner_close - inner - negated);
    if (right.empty() || left == "[") refuse("the intersection && of classes");
    out_ += fmt::format("(?:(?{}{})", negated ? '!' : '=', oniguruma_to_pcre2(fmt::format("[{}]", right)));
    out_ += oniguruma_to_pcre2(fmt::format("{}]", left)) + ")";
    at_ = inner_close + 2;
    return true;
  }

  // Where an && or a ] stands that ends what began at `from`; escapes are passed over.
  std::size_t end_of_class(std::size_t from) const {
    for (std::size_t i = from; i < pattern_.size(); ++i) {
      if (pattern_[i] == '\\') ++i;
      else if (pattern_[i] == '[') return std::string_view::npos;
      else if (pattern_.substr(i, 2) == "&&" || (pattern_[i] == ']' && i > from)) return i;
    }
    return std::string_view::npos;
  }

  // Options in front of a group: Ruby's (?m) is "dot matches newline", and its names for groups are its own.
  void group() {
    std::size_t i = 2;
    while (std::isalpha(static_cast<unsigned char>(peek(i))) || peek(i) == '-') {
      if (peek(i) != 'i' && peek(i) != '-') refuse(fmt::format("the group option '{}'", peek(i)));
      ++i;
    }
    const char kind = peek(i);
    const bool look_behind = kind == '<' && (peek(i + 1) == '=' || peek(i + 1) == '!');
    if (kind != ':' && kind != '=' && kind != '!' && kind != '>' && kind != ')' && !look_behind) {
      refuse(fmt::format("the group (?{}", kind));
    }
    copy(i);
  }

  // {n}, {n,}, {n,m}. Ruby reads {,m} as {0,m}, and a + behind an interval as another repetition.
  void interval() {
    if (peek(1) == ',') refuse("an interval without its lower bound");
    std::size_t i = 1;
    while (std::isdigit(static_cast<unsigned char>(peek(i))) || peek(i) == ',') ++i;
    if (i > 1 && peek(i) == '}' && peek(i + 1) == '+') refuse("a + behind an interval");
    copy(1);
  }

  void escape() {
    const char kind = peek(1);
    class_start_ = false;
    switch (kind) {
      case 's':
        return replace(2, "\\p{White_Space}");
      case 'S':
        return replace(2, "\\P{White_Space}");
      case 'w':
        return replace(2, in_class_ ? kWord : fmt::format("[{}{}]", kWord, kBareWord));
      case 'W':
        if (in_class_) refuse("\\W inside a class");
        return replace(2, fmt::format("[^{}{}]", kWord, kBareWord));
      case 'd':
        return replace(2, "\\p{Nd}");
      case 'D':
        return replace(2, "\\P{Nd}");
      case 'p':
      case 'P':
        return property();
      case 'u':
        return codepoint();
      case 'x':
      case 'n':
      case 'r':
      case 't':
      case 'f':
      case 'a':
      case 'e':
        return copy(2);
      case 'v':
        return replace(2, "\\x0b");
      case '\0':
        refuse("a backslash at its end");
      default:
        break;
    }
    if (std::isalnum(static_cast<unsigned char>(kind))) refuse(fmt::format("the escape \\{}", kind));
    copy(2);
  }

  void codepoint() {
    const std::string_view digits = pattern_.substr(at_ + 2, 4);
    if (digits.size() != 4 || !std::all_of(digits.begin(), digits.end(), [](unsigned char c) { return std::isxdigit(c); })) {
      refuse("\\u without four hexadecimal digits");
    }
    replace(6, fmt::format("\\x{{{}}}", digits));
  }

  // Long names of Oniguruma are scripts or a few binary properties; PCRE2 reads a bare script name as Script_Extensions.
  void property() {
    const std::size_t close = pattern_.find('}', at_);
    if (peek(2) != '{' || close == std::string_view::npos) refuse("\\p without a name in braces");
    std::string_view name = pattern_.substr(at_ + 3, close - at_ - 3);
    std::string text = fmt::format("\\{}{{", peek(1));
    if (!name.empty() && name[0] == '^') {
      text += '^';
      name.remove_prefix(1);
    }
    constexpr std::array<std::string_view, 4> kBinary = {"Alphabetic", "White_Space", "Uppercase", "Lowercase"};
    const bool plain = name.size() <= 2 || std::find(kBinary.begin(), kBinary.end(), name) != kBinary.end();
    text += plain ? "" : "sc:";
    text += name;
    replace(close + 1 - at_, text + "}");
  }

  static constexpr const char* kWord = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}";
  // Outside a class, Oniguruma looks \\w up in a table of Latin-1 that has superscripts and fractions too.
  static constexpr const char* kBareWord = "\\x{B2}\\x{B3}\\x{B9}\\x{BC}-\\x{BE}";
  std::string_view pattern_;
  std::size_t at_ = 0;
  bool in_class_ = false, class_start_ = false;
  std::string out_;
};

struct FreeMatchData {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};
}  // namespace

std::string oniguruma_to_pcre2(std::string_view pattern) { return Translator(pattern).run(); }

struct Regex::Compiled {
  pcre2_code* code = nullptr;
  pcre2_match_context* limits = nullptr;
  std::string pattern;
  bool jit = false;  // translated to machine code; else it is interpreted
  ~Compiled() {
    pcre2_match_context_free(limits);
    pcre2_code_free(code);
  }
};

Regex::Regex(std::string_view pattern) : compiled_(std::make_unique<Compiled>()) {
  if (pattern.size() > kMaxPattern) {
    fail(ErrorCode::invalid_argument, "pattern has {} bytes, allowed is at most {}", pattern.size(), kMaxPattern);
  }
  if (!utf8_valid(pattern)) fail(ErrorCode::invalid_argument, "pattern is not valid UTF-8");
  compiled_->pattern = pattern;
  const std::string translated = oniguruma_to_pcre2(pattern);
  const std::unique_ptr<pcre2_compile_context, decltype(&pcre2_compile_context_free)> context(pcre2_compile_context_create(nullptr),
                                                                                              &pcre2_compile_context_free);
  compiled_->limits = pcre2_match_context_create(nullptr);
  if (!context || !compiled_->limits) throw std::bad_alloc();
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  pcre2_set_parens_nest_limit(context.get(), 100);
  pcre2_set_match_limit(compiled_->limits, kMatchLimit);
  pcre2_set_heap_limit(compiled_->limits, kHeapLimitKib);
  int error = 0;
  std::size_t offset = 0;
  // Ruby's ^ and $ always look at lines.
  const std::uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C;
  compiled_->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(), options, &error, &offset, context.get());
  if (!compiled_->code) {
    std::array<PCRE2_UCHAR, 256> text{};
    pcre2_get_error_message(error, text.data(), text.size());
    fail(ErrorCode::invalid_argument, "pattern '{}' does not compile: {}", pattern, reinterpret_cast<const char*>(text.data()));
  }
  compiled_->jit = pcre2_jit_compile(compiled_->code, PCRE2_JIT_COMPLETE) == 0;
}

Regex::~Regex() = default;
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;

std::vector<TextRange> Regex::find_all(std::string_view text) const {
  std::vector<TextRange> matches;
  for_each(text, [&](const TextRange& match) { matches.push_back(match); });
  return matches;
}

bool Regex::find(std::string_view text, std::size_t from, TextRange& match) const {
  // One block of match data a thread: any pattern may use it, and the result is copied out at once.
  thread_local const std::unique_ptr<pcre2_match_data, FreeMatchData> data(pcre2_match_data_create(1, nullptr));
  if (!data) throw std::bad_alloc();
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.empty() ? "" : text.data());
  int found = PCRE2_ERROR_JIT_STACKLIMIT;
  if (compiled_->jit) {
    found = pcre2_jit_match(compiled_->code, subject, text.size(), from, 0, data.get(), compiled_->limits);
  }
  if (found == PCRE2_ERROR_JIT_STACKLIMIT) {
    found = pcre2_match(compiled_->code, subject, text.size(), from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, data.get(), compiled_->limits);
  }
  if (found == PCRE2_ERROR_NOMATCH) return false;
  if (found < 0) {
    fail(ErrorCode::resource_exhausted, "pattern '{}' gave up on a text of {} bytes (PCRE2 code {})", compiled_->pattern, text.size(), found);
  }
  const std::size_t* range = pcre2_get_ovector_pointer(data.get());
  match = {range[0], range[1]};
  return true;
}

std::size_t Regex::next_character(std::string_view text, std::size_t at) { return at < text.size() ? at + utf8_front(text.substr(at)).bytes : at + 1; }

}  // namespace lockstep
