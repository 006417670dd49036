#include "text/message/json_scanner.h"

namespace lockstep {
namespace {
bool is_json_space(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
}  // namespace

bool JsonScanner::feed(char c) {
  if (next_ == Next::inside) {
    if (part_ == Part::number) {
      if (feed_number(c)) return true;
      const bool whole = number_ == Number::zero || number_ == Number::digits || number_ == Number::fraction || number_ == Number::exponent;
      // What ends a number must itself fit behind it.
      if (!whole || !(is_json_space(c) || c == ',' || c == '}' || c == ']')) return false;
      const JsonScanner before = *this;
      end_value();
      if (feed(c)) return true;
      *this = before;
      return false;
    }
    if (part_ != Part::word) return feed_string(c);
    if (word_.front() != c) return false;
    word_.remove_prefix(1);
    if (word_.empty()) end_value();
    return true;
  }
  if (is_json_space(c)) return true;
  switch (next_) {
    case Next::value:
      if (may_close_ && c == ']') return close(c);
      return begin_value(c);
    case Next::key:
      if (may_close_ && c == '}') return close(c);
      if (c != '"') return false;
      next_ = Next::inside;
      part_ = Part::string;
      is_key_ = true;
      return true;
    case Next::colon:
      if (c != ':') return false;
      next_ = Next::value;
      may_close_ = false;
      return true;
    case Next::separator:
      if (c == '}' || c == ']') return close(c);
      if (c != ',') return false;
      next_ = open_.back() == '{' ? Next::key : Next::value;
      may_close_ = false;
      return true;
    case Next::inside:
    case Next::nothing:
      break;
  }
  return false;
}

bool JsonScanner::begin_value(char c) {
  if (c == '{' || c == '[') {
    if (open_.size() >= kMostDepth) return false;
    open_ += c;
    next_ = c == '{' ? Next::key : Next::value;
    may_close_ = true;
    return true;
  }
  if (c == '"') part_ = Part::string;
  else if (c == 't') part_ = Part::word, word_ = "rue";
  else if (c == 'f') part_ = Part::word, word_ = "alse";
  else if (c == 'n') part_ = Part::word, word_ = "ull";
  else if (c == '-' || is_digit(c)) part_ = Part::number, number_ = c == '-' ? Number::minus : c == '0' ? Number::zero : Number::digits;
  else return false;
  next_ = Next::inside;
  is_key_ = false;
  return true;
}

bool JsonScanner::feed_string(char c) {
  if (part_ == Part::string) {
    if (wants_low_ && c != '\\') return false;
    if (c == '\\') part_ = Part::escape;
    if (c != '"') return true;
    if (!is_key_) return end_value(), true;
    next_ = Next::colon;
    return true;
  }
  if (part_ == Part::escape) {
    if (c == 'u') {
      part_ = Part::unicode;
      unicode_left_ = 4;
      unicode_ = 0;
      return true;
    }
    if (wants_low_ || std::string_view("\"\\/bfnrt").find(c) == std::string_view::npos) return false;
    part_ = Part::string;
    return true;
  }
  const int digit = is_digit(c) ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
  if (digit < 0) return false;
  const std::uint32_t value = unicode_ << 4 | static_cast<std::uint32_t>(digit);
  if (unicode_left_ == 1) {
    const bool low = value >= 0xDC00 && value <= 0xDFFF;
    if (low != wants_low_) return false;
    wants_low_ = value >= 0xD800 && value <= 0xDBFF;
    part_ = Part::string;
  }
  unicode_ = value;
  --unicode_left_;
  return true;
}

bool JsonScanner::feed_number(char c) {
  const auto go = [&](Number to) {
    number_ = to;
    return true;
  };
  const bool e = c == 'e' || c == 'E';
  switch (number_) {
    case Number::minus:
      return is_digit(c) && go(c == '0' ? Number::zero : Number::digits);
    case Number::zero:
      return c == '.' ? go(Number::dot) : e && go(Number::e);
    case Number::digits:
      return is_digit(c) || (c == '.' ? go(Number::dot) : e && go(Number::e));
    case Number::dot:
      return is_digit(c) && go(Number::fraction);
    case Number::fraction:
      return is_digit(c) || (e && go(Number::e));
    case Number::e:
      return c == '+' || c == '-' ? go(Number::sign) : is_digit(c) && go(Number::exponent);
    case Number::sign:
      return is_digit(c) && go(Number::exponent);
    case Number::exponent:
      return is_digit(c);
  }
  return false;
}

bool JsonScanner::close(char bracket) {
  if (open_.empty() || open_.back() != (bracket == '}' ? '{' : '[')) return false;
  open_.pop_back();
  end_value();
  return true;
}

void JsonScanner::end_value() {
  next_ = open_.empty() ? Next::nothing : Next::separator;
  may_close_ = false;
}

void append_json_character(std::string& out, char c, bool in_string) {
  if (in_string && static_cast<unsigned char>(c) < 0x20) append_json_inside(out, {&c, 1});
  else out += c;
}

void append_json_inside(std::string& out, std::string_view text) {
  constexpr char kHex[] = "0123456789abcdef";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\b':
        out += "\\b";
        break;
      case '\f':
        out += "\\f";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      default:
        if (byte >= 0x20) {
          out += c;
        } else {
          out += "\\u00";
          out += kHex[byte >> 4];
          out += kHex[byte & 15];
        }
    }
  }
}

}  // namespace lockstep
