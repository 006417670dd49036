#include "text/template/numbers.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/error.h"
#include "text/template/budget.h"

namespace lockstep::jinja {

void fail_integer_range() { fail(ErrorCode::unsupported, "an integer in the chat template has more than 127 bits; larger ones are not offered"); }

std::string integer_text(Integer value) {
  if (value == 0) return "0";
  const bool negative = value < 0;
  std::string digits;
  while (value != 0) {
    const int digit = static_cast<int>(value % 10);
    digits += static_cast<char>('0' + (digit < 0 ? -digit : digit));
    value /= 10;
  }
  if (negative) digits += '-';
  std::reverse(digits.begin(), digits.end());
  return digits;
}

std::string real_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[64];
  const auto done = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific);
  const std::string_view shortest(buffer, static_cast<std::size_t>(done.ptr - buffer));
  const std::size_t e = shortest.find('e');
  const int exponent = std::atoi(std::string(shortest.substr(e + 1)).c_str());
  std::string sign, digits;
  for (const char c : shortest.substr(0, e)) {
    if (c == '-') sign = "-";
    else if (c != '.') digits += c;
  }
  if (exponent < -4 || exponent >= 16) {
    std::string mantissa = digits.substr(0, 1);
    if (digits.size() > 1) mantissa += "." + digits.substr(1);
    return fmt::format("{}{}e{}{:02}", sign, mantissa, exponent < 0 ? '-' : '+', std::abs(exponent));
  }
  if (exponent < 0) return sign + "0." + std::string(static_cast<std::size_t>(-exponent - 1), '0') + digits;
  const auto whole = static_cast<std::size_t>(exponent) + 1;
  if (digits.size() <= whole) return sign + digits + std::string(whole - digits.size(), '0') + ".0";
  return sign + digits.substr(0, whole) + "." + digits.substr(whole);
}

namespace {
std::string_view python_trim(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || (text.front() >= '\t' && text.front() <= '\r'))) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || (text.back() >= '\t' && text.back() <= '\r'))) text.remove_suffix(1);
  return text;
}

// Takes out single underscores between digits; none when one stands elsewhere.
std::optional<std::string> without_underscores(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      out += text[i];
      continue;
    }
    const auto word = [&](std::size_t at) { return at < text.size() && std::isalnum(static_cast<unsigned char>(text[at])); };
    if (i == 0 || !word(i - 1) || !word(i + 1)) return {};
  }
  return out;
}
}  // namespace

std::optional<Integer> parse_integer(std::string_view text, int base) {
  RenderBudget::read(text.size());
  text = python_trim(text);
  bool negative = false;
  if (!text.empty() && (text[0] == '+' || text[0] == '-')) {
    negative = text[0] == '-';
    text.remove_prefix(1);
  }
  if (text.size() > 1 && text[0] == '0') {
    const char letter = static_cast<char>(text[1] | 0x20);
    const int named = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 0;
    if (named && (base == 0 || base == named)) {
      base = named;
      text.remove_prefix(2);
      if (!text.empty() && text[0] == '_') text.remove_prefix(1);
    }
  }
  const auto digits = without_underscores(text);
  if (!digits || digits->empty()) return {};
  if (base == 0 && (*digits)[0] == '0' && digits->find_first_not_of('0') != std::string::npos) return {};
  if (base == 0) base = 10;
  Integer value = 0;
  for (const char c : *digits) {
    const int digit = c >= '0' && c <= '9' ? c - '0' : (c | 0x20) >= 'a' && (c | 0x20) <= 'z' ? (c | 0x20) - 'a' + 10 : 99;
    if (digit >= base) return {};
    if (__builtin_mul_overflow(value, static_cast<Integer>(base), &value) || __builtin_add_overflow(value, static_cast<Integer>(digit), &value))
      fail_integer_range();
  }
  return negative ? -value : value;
}

std::optional<double> parse_real(std::string_view text) {
  RenderBudget::read(text.size());
  text = python_trim(text);
  const auto plain = without_underscores(text);
  if (!plain || plain->empty()) return {};
  std::string_view rest = *plain;
  const bool negative = rest[0] == '-';
  if (rest[0] == '+' || rest[0] == '-') rest.remove_prefix(1);
  if (rest.empty() || rest[0] == '+' || rest[0] == '-') return {};
  std::string lower(rest);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  double value = 0;
  if (lower == "inf" || lower == "infinity") {
    value = HUGE_VAL;
  } else if (lower == "nan") {
    value = std::nan("");
  } else {
    if (!(lower[0] == '.' || (lower[0] >= '0' && lower[0] <= '9'))) return {};
    const auto done = std::from_chars(lower.data(), lower.data() + lower.size(), value);
    if (done.ptr != lower.data() + lower.size() || (done.ec != std::errc() && done.ec != std::errc::result_out_of_range)) return {};
    if (done.ec == std::errc::result_out_of_range) {
      // Too large or too small: the exponent's sign tells which.
      const std::size_t e = lower.find('e');
      value = e != std::string::npos && lower[e + 1] == '-' ? 0 : HUGE_VAL;
    }
  }
  return negative ? -value : value;
}

Integer integer_of(double value) {
  if (std::isnan(value)) fail(ErrorCode::invalid_argument, "cannot convert float NaN to integer");
  if (std::isinf(value)) fail(ErrorCode::invalid_argument, "cannot convert float infinity to integer");
  if (std::fabs(value) >= 0x1p126) fail_integer_range();
  return static_cast<Integer>(value);
}

}  // namespace lockstep::jinja
