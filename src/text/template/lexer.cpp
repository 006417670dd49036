#include "text/template/lexer.h"

#include <utf8proc.h>

#include <array>

#include "base/error.h"
#include "text/template/numbers.h"

namespace lockstep::jinja {
namespace {
using Type = Token::Type;

// What \w takes, and the marks that an identifier may hold.
bool is_word(std::uint32_t c) {
  if (c < 0x80) return std::isalnum(static_cast<int>(c)) || c == '_';
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:
      return false;
  }
}

bool is_identifier(std::string_view name) {
  bool good = true, first = true;
  each_character(name, [&](std::uint32_t c, std::size_t, std::size_t) {
    const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
    const bool letter = c == '_' || (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO) || category == UTF8PROC_CATEGORY_NL;
    if (category == UTF8PROC_CATEGORY_NO || (first && !letter)) good = false;
    first = false;
  });
  return good;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) {
    source_.reserve(source.size());
    for (std::size_t i = 0; i < source.size(); ++i) {
      if (source[i] != '\r') source_ += source[i];
      else if (i + 1 == source.size() || source[i + 1] != '\n') source_ += '\n';
    }
    if (!source_.empty() && source_.back() == '\n') source_.pop_back();
    rest_ = source_;
  }

  std::vector<Token> run() {
    while (at_ < rest_.size()) root();
    add(Type::eof, "");
    return std::move(tokens_);
  }

 private:
  bool looking_at(std::string_view text) const { return rest_.substr(at_, text.size()) == text; }
  char peek(std::size_t ahead = 0) const { return at_ + ahead < rest_.size() ? rest_[at_ + ahead] : '\0'; }

  Token& add(Type type, std::string text) {
    tokens_.push_back({type, line_, std::move(text)});
    return tokens_.back();
  }
  // Moves on, counting lines.
  void skip(std::size_t bytes) {
    for (std::size_t i = 0; i < bytes; ++i) line_ += rest_[at_ + i] == '\n';
    at_ += bytes;
  }
  std::size_t space_at(std::size_t at) const {  // bytes of white space there
    const std::size_t start = at;
    while (at < rest_.size()) {
      const Utf8Unit unit = utf8_front(rest_.substr(at));
      if (!is_python_space(unit.codepoint)) break;
      at += unit.bytes;
    }
    return at - start;
  }

  // Text up to a tag, then the tag.
  void root() {
    std::size_t tag = at_;
    for (;; ++tag) {
      tag = rest_.find('{', tag);
      if (tag == std::string_view::npos || tag + 1 >= rest_.size()) return data(rest_.size(), '\0', false);
      const char kind = rest_[tag + 1];
      if (kind != '{' && kind != '%' && kind != '#') continue;
      break;
    }
    const char kind = rest_[tag + 1];
    const char after = tag + 2 < rest_.size() ? rest_[tag + 2] : '\0';
    const char sign = after == '-' || after == '+' ? after : '\0';
    data(tag, sign, kind == '{');
    const std::size_t raw = kind == '%' ? raw_tag(tag, "raw", false) : 0;
    if (raw) {
      skip(raw);
      line_starting_ = rest_[at_ - 1] == '\n';
      return raw_block();
    }
    if (kind != '#') add(kind == '{' ? Type::variable_begin : Type::block_begin, "");
    skip(2 + (sign != '\0'));
    line_starting_ = false;
    if (kind == '#') return comment();
    inside(kind == '{');
  }

  // Emits the text up to `end` less the white space that the tag behind it takes.
  void data(std::size_t end, char sign, bool variable) {
    std::string_view text = rest_.substr(at_, end - at_);
    std::size_t keep = text.size();
    if (sign == '-') {
      keep = strip(Text(std::string(text)), Side::right).bytes().size();
    } else if (end < rest_.size() && sign != '+' && !variable) {
      const std::size_t newline = text.rfind('\n');
      const std::size_t line_begin = newline == std::string_view::npos ? 0 : newline + 1;
      if ((line_begin > 0 || line_starting_) && line_begin < text.size() && space_at(at_ + line_begin) >= text.size() - line_begin) keep = line_begin;
    }
    if (keep > 0) add(Type::data, std::string(text.substr(0, keep)));
    skip(text.size());
  }

  // Bytes of `{%- raw -%}` or `{%- endraw -%}` at `at`, 0 when it is something else. trim: with what the end tag swallows.
  std::size_t raw_tag(std::size_t at, std::string_view word, bool trim) const {
    const std::size_t start = at;
    if (rest_.substr(at, 2) != "{%") return 0;
    at += 2;
    if (at < rest_.size() && (rest_[at] == '-' || rest_[at] == '+')) ++at;
    at += space_at(at);
    if (rest_.substr(at, word.size()) != word) return 0;
    at += word.size();
    at += space_at(at);
    const std::size_t closed = block_end_at(at, trim, trim);
    return closed ? at + closed - start : 0;
  }

  // Bytes of `-%}` with the white space behind, `+%}`, or `%}` with a newline behind; 0 when there is none.
  std::size_t block_end_at(std::size_t at, bool plus, bool newline) const {
    if (rest_.substr(at, 3) == "-%}") return 3 + space_at(at + 3);
    if (plus && rest_.substr(at, 3) == "+%}") return 3;
    if (rest_.substr(at, 2) == "%}") return 2 + (newline && at + 2 < rest_.size() && rest_[at + 2] == '\n');
    return 0;
  }

  void raw_block() {
    for (std::size_t tag = at_;; ++tag) {
      tag = rest_.find("{%", tag);
      if (tag == std::string_view::npos) {
        if (at_ == rest_.size()) return;  // jinja2 lets a template end there
        fail_syntax(line_, "Missing end of raw directive");
      }
      const std::size_t bytes = raw_tag(tag, "endraw", true);
      if (!bytes) continue;
      const char after = rest_[tag + 2];
      data(tag, after == '-' || after == '+' ? after : '\0', false);
      skip(bytes);
      line_starting_ = rest_[at_ - 1] == '\n';
      return;
    }
  }

  void comment() {
    const std::size_t end = rest_.find("#}", at_);
    if (end == std::string_view::npos) {
      if (at_ == rest_.size()) return;
      fail_syntax(line_, "Missing end of comment tag");
    }
    std::size_t after = end + 2;
    const char sign = end > at_ ? rest_[end - 1] : '\0';
    if (sign == '-') after += space_at(after);
    else if (sign != '+' && after < rest_.size() && rest_[after] == '\n') ++after;
    skip(after - at_);
    line_starting_ = rest_[at_ - 1] == '\n';
  }

  // Tokens up to the end of the tag.
  void inside(bool variable) {
    std::string open;
    while (at_ < rest_.size()) {
      if (open.empty()) {
        std::size_t closed = 0;
        if (!variable) closed = block_end_at(at_, true, true);
        else if (looking_at("-}}")) closed = 3 + space_at(at_ + 3);
        else if (looking_at("}}")) closed = 2;
        if (closed) {
          add(variable ? Type::variable_end : Type::block_end, "");
          skip(closed);
          line_starting_ = rest_[at_ - 1] == '\n';
          return;
        }
      }
      if (const std::size_t space = space_at(at_)) {
        skip(space);
        continue;
      }
      if (number() || name() || string()) continue;
      op(open);
    }
  }

  std::size_t digits_at(std::size_t at) const {  // (\d+_)*\d+
    const std::size_t start = at;
    const auto digit = [&](std::size_t i) { return i < rest_.size() && rest_[i] >= '0' && rest_[i] <= '9'; };
    while (digit(at) || (at > start && rest_.substr(at, 1) == "_" && digit(at + 1))) ++at;
    return at - start;
  }

  bool number() {
    const std::size_t whole = digits_at(at_);
    if (!whole) return false;
    // A real: not behind a dot (a.0.5), with a fraction, an exponent or both.
    if (at_ == 0 || rest_[at_ - 1] != '.') {
      std::size_t end = at_ + whole;
      const std::size_t fraction = rest_.substr(end, 1) == "." ? digits_at(end + 1) : 0;
      if (fraction) end += 1 + fraction;
      std::size_t exponent = 0;
      if (end < rest_.size() && (rest_[end] | 0x20) == 'e') {
        std::size_t sign = end + 1;
        if (sign < rest_.size() && (rest_[sign] == '+' || rest_[sign] == '-')) ++sign;
        if (const std::size_t digits = digits_at(sign)) exponent = sign + digits - end;
      }
      if (fraction || exponent) {
        end += exponent;
        Token& token = add(Type::real, "");
        token.real = *parse_real(rest_.substr(at_, end - at_));
        skip(end - at_);
        return true;
      }
    }
    std::size_t end = at_ + whole;
    if (rest_[at_] == '0') {
      const char letter = static_cast<char>(peek(1) | 0x20);
      const auto good = [&](char c) {
        return letter == 'x'   ? std::isxdigit(static_cast<unsigned char>(c)) != 0
               : letter == 'o' ? c >= '0' && c <= '7'
                               : letter == 'b' && (c == '0' || c == '1');
      };
      const auto is_good = [&](std::size_t i) { return i < rest_.size() && good(rest_[i]); };
      std::size_t i = at_ + 2;
      while (is_good(i) || (i < rest_.size() && rest_[i] == '_' && is_good(i + 1))) ++i;
      if (i > at_ + 2) {
        end = i;
      } else {
        end = at_ + 1;  // 0(_?0)*: other digits start a number of their own
        while (rest_.substr(end, 1) == "0" || (rest_.substr(end, 2) == "_0")) end += rest_[end] == '_' ? 2 : 1;
      }
    }
    Token& token = add(Type::integer, "");
    token.integer = *parse_integer(rest_.substr(at_, end - at_), 0);
    skip(end - at_);
    return true;
  }

  bool name() {
    std::size_t end = at_;
    while (end < rest_.size()) {
      const Utf8Unit unit = utf8_front(rest_.substr(end));
      if (!is_word(unit.codepoint)) break;
      end += unit.bytes;
    }
    if (end == at_) return false;
    const std::string_view text = rest_.substr(at_, end - at_);
    if (!is_identifier(text)) fail_syntax(line_, "Invalid character in identifier");
    add(Type::name, std::string(text));
    at_ = end;
    return true;
  }

  bool string() {
    const char mark = peek();
    if (mark != '\'' && mark != '"') return false;
    std::size_t end = at_ + 1;
    while (end < rest_.size() && rest_[end] != mark) end += rest_[end] == '\\' ? 2 : 1;
    if (end >= rest_.size()) return false;
    add(Type::string, unescape(rest_.substr(at_ + 1, end - at_ - 1)));
    skip(end + 1 - at_);
    return true;
  }

  // Python's escapes; an unknown one stays as it is.
  std::string unescape(std::string_view text) const {
    std::string out;
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (text[i] != '\\' || i + 1 == text.size()) {
        out += text[i];
        continue;
      }
      const char c = text[++i];
      static constexpr std::string_view letters = "abfnrtv\\'\"", values = "\a\b\f\n\r\t\v\\'\"";
      if (const std::size_t known = letters.find(c); known != std::string_view::npos) {
        out += values[known];
      } else if (c == '\n') {
        continue;
      } else if (c >= '0' && c <= '7') {
        std::uint32_t value = 0;
        std::size_t n = 0;
        for (; n < 3 && i + n < text.size() && text[i + n] >= '0' && text[i + n] <= '7'; ++n) value = value * 8 + static_cast<std::uint32_t>(text[i + n] - '0');
        i += n - 1;
        utf8_append(out, value);
      } else if (c == 'x' || c == 'u' || c == 'U') {
        const std::size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : 8;
        const std::string hex(text.substr(i + 1, digits));
        if (hex.size() != digits || hex.find_first_not_of("0123456789abcdefABCDEF") != std::string::npos)
          fail_syntax(line_, "truncated \\{} escape in a string", c);
        const auto value = static_cast<std::uint32_t>(std::stoul(hex, nullptr, 16));
        if (value > 0x10FFFF) fail_syntax(line_, "illegal Unicode character in a string");
        if (value >= 0xD800 && value < 0xE000) fail(ErrorCode::unsupported, "chat template line {}: the lone surrogate \\{}{} is not offered", line_, c, hex);
        utf8_append(out, value);
        i += digits;
      } else if (c == 'N') {
        fail(ErrorCode::unsupported, "chat template line {}: \\N{{...}} in a string is not offered", line_);
      } else if (static_cast<unsigned char>(c) >= 0x80) {
        // Python writes the character as an escape first, so the backslash in front makes that escape literal text.
        const Utf8Unit unit = utf8_front(text.substr(i));
        const std::uint32_t value = unit.codepoint;
        out += value < 0x100 ? fmt::format("\\x{:02x}", value) : value < 0x10000 ? fmt::format("\\u{:04x}", value) : fmt::format("\\U{:08x}", value);
        i += unit.bytes - 1;
      } else {
        out += '\\';
        out += c;
      }
    }
    return out;
  }

  void op(std::string& open) {
    static constexpr std::array<std::string_view, 26> operators = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
                                                                   "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};
    for (const std::string_view text : operators) {
      if (!looking_at(text)) continue;
      const char c = text[0];
      if (c == '{' || c == '(' || c == '[') {
        open += c == '{' ? '}' : c == '(' ? ')' : ']';
      } else if (c == '}' || c == ')' || c == ']') {
        if (open.empty()) fail_syntax(line_, "unexpected '{}'", text);
        if (open.back() != c) fail_syntax(line_, "unexpected '{}', expected '{}'", text, open.back());
        open.pop_back();
      }
      add(Type::op, std::string(text));
      skip(text.size());
      return;
    }
    const Utf8Unit unit = utf8_front(rest_.substr(at_));
    fail_syntax(line_, "unexpected char '{}'", utf8_excerpt(rest_.substr(at_, unit.bytes)));
  }

  std::string source_;
  std::string_view rest_;
  std::size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
  std::vector<Token> tokens_;
};
}  // namespace

std::vector<Token> tokenize(std::string_view source) { return Lexer(source).run(); }

}  // namespace lockstep::jinja
