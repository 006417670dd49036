#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "text/template/budget.h"
#include "text/template/builtins.h"
#include "text/template/numbers.h"
#include "text/template/value_text.h"

namespace lockstep::jinja {
namespace {
constexpr std::int64_t kMostDigits = 1000;

// What stands behind the % or the colon, in common.
struct Spec {
  Text fill = Text(" ");
  char align = '\0', sign = '\0', type = '\0', group = '\0';
  bool alternate = false, zero = false;
  std::int64_t width = 0, precision = -1;
};

Text pad(const Text& body, const Spec& spec, char align) {
  const std::int64_t missing = std::max<std::int64_t>(0, spec.width - body.length());
  RenderBudget::bytes(static_cast<std::size_t>(missing) * spec.fill.bytes().size());
  const std::int64_t left = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
  TextBuilder out;
  for (std::int64_t i = 0; i < left; ++i) out.append(spec.fill);
  out.append(body);
  for (std::int64_t i = left; i < missing; ++i) out.append(spec.fill);
  return out.take();
}

std::string digits_of(Integer value, int base, bool upper) {
  if (base == 10) return integer_text(value);
  std::string out;
  do out += (upper ? "0123456789ABCDEF" : "0123456789abcdef")[value % base];
  while ((value /= base) != 0);
  std::reverse(out.begin(), out.end());
  return out;
}

void group_digits(std::string& digits, char mark, std::size_t size) {
  for (std::size_t at = digits.size(); at > size;) digits.insert(at -= size, 1, mark);
}

std::string sign_text(bool negative, char sign) { return negative ? "-" : sign == '+' ? "+" : sign == ' ' ? " " : ""; }

// Sign or prefix, then digits, padded: zeros go between the two.
Text number_text(const std::string& sign, const std::string& body, const Spec& spec, bool foreign) {
  if (spec.zero || spec.align == '=') {
    Spec inner = spec;
    if (spec.zero && spec.align == '\0') inner.fill = Text("0");
    inner.width = spec.width - static_cast<std::int64_t>(sign.size());
    TextBuilder out;
    out.append(sign, foreign);
    out.append(pad(Text(body, foreign), inner, '>'));
    return out.take();
  }
  return pad(Text(sign + body, foreign), spec, spec.align ? spec.align : '>');
}

// %e, %f, %g of the absolute value.
std::string real_digits(double value, char type, std::int64_t precision, bool alternate) {
  if (precision > kMostDigits) fail(ErrorCode::resource_exhausted, "a number is formatted with {} digits, allowed is up to {}", precision, kMostDigits);
  const bool upper = type == 'E' || type == 'F' || type == 'G';
  const char kind = static_cast<char>(type | 0x20);
  std::string text;
  if (!std::isfinite(value)) text = std::isnan(value) ? "nan" : "inf";
  else {
    const std::string pattern = std::string("%") + (alternate ? "#" : "") + ".*" + kind;
    const int size = std::snprintf(nullptr, 0, pattern.c_str(), static_cast<int>(precision), value);
    text.resize(static_cast<std::size_t>(size) + 1);
    std::snprintf(text.data(), text.size(), pattern.c_str(), static_cast<int>(precision), value);
    text.pop_back();
  }
  if (upper)
    for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

Integer as_integer(const Value& value, char type) {
  if (value.is_integral()) return value.integer();
  if (value.is(Kind::real) && (type == 'd' || type == 'i' || type == 'u')) return integer_of(value.real());
  fail(ErrorCode::invalid_argument, "%{} format: a real number is required, not {}", type, type_name(value));
}

double as_real(const Value& value) {
  if (value.is_undefined()) fail_undefined(value);
  if (!value.is_number()) fail(ErrorCode::invalid_argument, "must be real number, not {}", type_name(value));
  return value.real();
}

Text first_characters(const Text& text, std::int64_t most) { return most < 0 || most >= text.length() ? text : text.slice(0, text.byte_of(most)); }

std::int64_t read_number(std::string_view text, std::size_t& at) {
  std::int64_t value = 0;
  while (at < text.size() && text[at] >= '0' && text[at] <= '9') {
    value = value * 10 + (text[at++] - '0');
    if (value > (std::int64_t{1} << 40)) fail(ErrorCode::invalid_argument, "Too many decimal digits in format string");
  }
  return value;
}
}  // namespace

Text percent_format(Interpreter&, const Text& format, const Value& arguments) {
  const std::string_view text = format.view();
  const bool markup = format.markup();
  std::size_t next = 0;
  bool used_names = false;
  const auto take = [&]() -> Value {
    if (arguments.is(Kind::tuple)) {
      if (next >= arguments.items().size()) fail(ErrorCode::invalid_argument, "not enough arguments for format string");
      return arguments.items()[next++];
    }
    if (next++ > 0) fail(ErrorCode::invalid_argument, "not enough arguments for format string");
    return arguments;
  };
  TextBuilder out;
  std::size_t start = 0;
  for (std::size_t at = text.find('%'); at != std::string_view::npos; at = text.find('%', start)) {
    out.append_slice(format, start, at);
    const std::size_t begin = at++;
    const auto peek = [&] {
      if (at >= text.size()) fail(ErrorCode::invalid_argument, "incomplete format");
      return text[at];
    };
    Value value;
    if (peek() == '(') {
      int depth = 1;
      const std::size_t name = ++at;
      while (depth > 0) {
        if (at >= text.size()) fail(ErrorCode::invalid_argument, "incomplete format key");
        depth += text[at] == '(' ? 1 : text[at] == ')' ? -1 : 0;
        ++at;
      }
      if (!arguments.is(Kind::dict)) fail(ErrorCode::invalid_argument, "format requires a mapping");
      const Value* found = arguments.dict().find(text.substr(name, at - 1 - name));
      if (!found) fail(ErrorCode::invalid_argument, "no value for the key '{}'", utf8_excerpt(text.substr(name, at - 1 - name)));
      value = *found;
      used_names = true;
    }
    Spec spec;
    for (bool more = true; more;) {
      switch (peek()) {
        case '-':
          spec.align = '<';
          break;
        case '+':
          spec.sign = '+';
          break;
        case ' ':
          if (spec.sign != '+') spec.sign = ' ';
          break;
        case '#':
          spec.alternate = true;
          break;
        case '0':
          spec.zero = true;
          break;
        default:
          more = false;
          continue;
      }
      ++at;
    }
    const auto number = [&](bool& negative) {
      negative = false;
      if (peek() != '*') return read_number(text, at);
      ++at;
      const Value width = take();
      if (!width.is_integral()) fail(ErrorCode::invalid_argument, "* wants int");
      const std::int64_t wide = small_argument(width, "width");
      negative = wide < 0;
      return negative ? -std::max<std::int64_t>(wide, -INT64_MAX) : wide;
    };
    bool negative = false;
    spec.width = number(negative);
    if (negative) spec.align = '<';
    if (peek() == '.') {
      ++at;
      spec.precision = number(negative);
      if (negative) spec.precision = 0;
    }
    while (peek() == 'l' || peek() == 'h' || peek() == 'L') ++at;
    const char type = peek();
    ++at;
    start = at;
    if (spec.align == '<') spec.zero = false;
    if (type == '%') {
      out.append('%');
      continue;
    }
    if (value.is(Kind::missing)) value = take();
    // A format from outside chooses what a number looks like.
    const bool foreign = value.foreign() || format.slice(begin, at).is_foreign();
    switch (type) {
      case 's':
      case 'r':
      case 'a': {
        if (type == 'a') fail(ErrorCode::unsupported, "%a is not offered in chat templates");
        Text shown = type == 's' ? value.is(Kind::text) ? value.text() : str(value) : repr(value);
        if (markup) shown = html_escape(shown);
        out.append(pad(first_characters(shown, spec.precision), spec, spec.align ? spec.align : '>'));
        break;
      }
      case 'c': {
        std::string character;
        if (value.is_integral()) {
          const Integer code = value.integer();
          if (code < 0 || code > 0x10FFFF) fail(ErrorCode::invalid_argument, "%c arg not in range(0x110000)");
          utf8_append(character, static_cast<std::uint32_t>(code));
        } else if (value.is(Kind::text) && value.text().length() == 1) {
          character = value.text().bytes();
        } else {
          fail(ErrorCode::invalid_argument, "%c requires int or char");
        }
        out.append(pad(Text(character, foreign || (value.is(Kind::text) && value.text().is_foreign())), spec, spec.align ? spec.align : '>'));
        break;
      }
      case 'd':
      case 'i':
      case 'u':
      case 'x':
      case 'X':
      case 'o': {
        const Integer integer = as_integer(value, type);
        const int base = type == 'x' || type == 'X' ? 16 : type == 'o' ? 8 : 10;
        std::string digits = digits_of(integer < 0 ? -integer : integer, base, type == 'X');
        if (spec.precision > kMostDigits)
          fail(ErrorCode::resource_exhausted, "a number is formatted with {} digits, allowed is up to {}", spec.precision, kMostDigits);
        if (spec.precision > static_cast<std::int64_t>(digits.size())) digits.insert(0, static_cast<std::size_t>(spec.precision) - digits.size(), '0');
        std::string sign = sign_text(integer < 0, spec.sign);
        if (spec.alternate && base != 10) sign += type == 'x' ? "0x" : type == 'X' ? "0X" : "0o";
        out.append(number_text(sign, digits, spec, foreign));
        break;
      }
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G': {
        const double real = as_real(value);
        out.append(number_text(sign_text(std::signbit(real) && !std::isnan(real), spec.sign),
                               real_digits(std::fabs(real), type, spec.precision < 0 ? 6 : spec.precision, spec.alternate), spec, foreign));
        break;
      }
      default:
        fail(ErrorCode::invalid_argument, "unsupported format character '{}'", utf8_excerpt(text.substr(at - 1, 1)));
    }
  }
  out.append_slice(format, start, text.size());
  const bool mapping = arguments.is(Kind::dict) || arguments.is(Kind::list) || arguments.is(Kind::range) || arguments.is_undefined();
  if (arguments.is(Kind::tuple) ? next < arguments.items().size() : next == 0 && !mapping && !used_names)
    fail(ErrorCode::invalid_argument, "not all arguments converted during string formatting");
  Text result = out.take();
  result.set_markup(markup);
  return result;
}

// --- str.format

namespace {
Spec parse_spec(const Text& spec_text) {
  Spec spec;
  const std::string_view text = spec_text.view();
  std::size_t at = 0;
  const auto is_align = [](char c) { return c == '<' || c == '>' || c == '=' || c == '^'; };
  if (!text.empty()) {
    const std::size_t first = spec_text.character_end(0);
    if (first < text.size() && is_align(text[first])) {
      spec.fill = spec_text.slice(0, first);
      spec.align = text[first];
      at = first + 1;
    } else if (is_align(text[0])) {
      spec.align = text[0];
      at = 1;
    }
  }
  const auto peek = [&] { return at < text.size() ? text[at] : '\0'; };
  if (peek() == '+' || peek() == '-' || peek() == ' ') spec.sign = text[at++];
  if (peek() == '#') spec.alternate = true, ++at;
  if (peek() == '0') {
    spec.zero = true;
    ++at;
  }
  spec.width = read_number(text, at);
  if (peek() == ',' || peek() == '_') spec.group = text[at++];
  if (peek() == '.') {
    ++at;
    if (peek() < '0' || peek() > '9') fail(ErrorCode::invalid_argument, "Format specifier missing precision");
    spec.precision = read_number(text, at);
  }
  if (at < text.size()) spec.type = text[at++];
  if (at != text.size()) fail(ErrorCode::invalid_argument, "Invalid format specifier '{}'", utf8_excerpt(text));
  return spec;
}

[[noreturn]] void bad_type(const Spec& spec, const Value& value) {
  fail(ErrorCode::invalid_argument, "Unknown format code '{}' for object of type '{}'", std::string(1, spec.type), type_name(value));
}

Text format_value(const Value& value, const Text& spec_text, bool foreign) {
  if (spec_text.empty()) return str(value);
  if (!value.is(Kind::text) && !value.is_number()) fail(ErrorCode::invalid_argument, "unsupported format string passed to {}.__format__", type_name(value));
  Spec spec = parse_spec(spec_text);
  if (value.is(Kind::text)) {
    if ((spec.type && spec.type != 's') || spec.sign || spec.alternate || spec.group || spec.align == '=') bad_type(spec, value);
    if (spec.zero && !spec.align) spec.fill = Text("0");
    return pad(first_characters(value.text(), spec.precision), spec, spec.align ? spec.align : '<');
  }
  std::string body, prefix;
  bool negative = false;
  const std::string_view integer_types("bcdoxXn");
  if (value.is_integral() && (spec.type == '\0' || integer_types.find(spec.type) != std::string_view::npos)) {
    if (spec.precision >= 0) fail(ErrorCode::invalid_argument, "Precision not allowed in integer format specifier");
    if (spec.type == 'c') fail(ErrorCode::unsupported, "the format code 'c' is not offered in chat templates");
    const int base = spec.type == 'b' ? 2 : spec.type == 'o' ? 8 : spec.type == 'x' || spec.type == 'X' ? 16 : 10;
    negative = value.integer() < 0;
    body = digits_of(negative ? -value.integer() : value.integer(), base, spec.type == 'X');
    if (spec.group) group_digits(body, spec.group, base == 10 ? 3 : 4);
    if (spec.alternate && base != 10) prefix = std::string("0") + spec.type;
  } else {
    const double real = value.real();
    negative = std::signbit(real) && !std::isnan(real);
    const double magnitude = std::fabs(real);
    const char type = spec.type;
    if (type == '\0' && spec.precision < 0) {
      body = real_text(magnitude);
    } else if (type == '\0') {
      body = real_digits(magnitude, 'g', std::max<std::int64_t>(spec.precision, 1), spec.alternate);
      if (body.find_first_of(".en") == std::string::npos) body += ".0";
    } else if (std::string_view("eEfFgG").find(type) != std::string_view::npos) {
      body = real_digits(magnitude, type, spec.precision < 0 ? 6 : spec.precision, spec.alternate);
    } else if (type == '%') {
      body = real_digits(magnitude * 100, 'f', spec.precision < 0 ? 6 : spec.precision, spec.alternate) + "%";
    } else {
      bad_type(spec, value);
    }
    if (spec.group) {
      const std::size_t point = std::min(body.find_first_not_of("0123456789"), body.size());
      std::string whole = body.substr(0, point);
      group_digits(whole, spec.group, 3);
      body = whole + body.substr(point);
    }
  }
  if (spec.group && spec.zero) fail(ErrorCode::unsupported, "zero padding of grouped digits is not offered in chat templates");
  return number_text(sign_text(negative, spec.sign) + prefix, body, spec, foreign || value.foreign());
}

class BraceFormatter {
 public:
  explicit BraceFormatter(const Arguments& arguments) : arguments_(arguments) {}

  Text run(const Text& format, int depth) {
    if (depth < 0) fail(ErrorCode::invalid_argument, "Max string recursion exceeded");
    const std::string_view text = format.view();
    TextBuilder out;
    for (std::size_t at = 0; at < text.size();) {
      const char c = text[at];
      if (c != '{' && c != '}') {
        const std::size_t end = std::min(text.find_first_of("{}", at), text.size());
        out.append_slice(format, at, end);
        at = end;
        continue;
      }
      if (at + 1 < text.size() && text[at + 1] == c) {
        out.append_slice(format, at, at + 1);
        at += 2;
        continue;
      }
      if (c == '}') fail(ErrorCode::invalid_argument, "Single '}}' encountered in format string");
      RenderBudget::step();
      std::size_t end = at + 1;
      int nested = 1;
      for (; end < text.size() && nested > 0; ++end) nested += text[end] == '{' ? 1 : text[end] == '}' ? -1 : 0;
      if (nested > 0) fail(ErrorCode::invalid_argument, "expected '}}' before end of string");
      field(out, format.slice(at + 1, end - 1), depth);
      at = end;
    }
    return out.take();
  }

 private:
  void field(TextBuilder& out, const Text& whole, int depth) {
    const std::string_view text = whole.view();
    std::size_t end = 0;
    for (int bracket = 0; end < text.size() && (bracket || (text[end] != '!' && text[end] != ':')); ++end)
      bracket = text[end] == '[' ? 1 : text[end] == ']' ? 0 : bracket;
    Value value = lookup(text.substr(0, end));
    if (end < text.size() && text[end] == '!') {
      const char conversion = end + 1 < text.size() ? text[end + 1] : '\0';
      if (end + 2 < text.size() && text[end + 2] != ':') fail(ErrorCode::invalid_argument, "expected ':' after conversion specifier");
      if (conversion == 'r') value = Value::of(repr(value));
      else if (conversion == 's') value = Value::of(str(value));
      else if (conversion == 'a') fail(ErrorCode::unsupported, "the conversion !a is not offered in chat templates");
      else fail(ErrorCode::invalid_argument, "Unknown conversion specifier in a format string");
      end += 2;
    }
    Text spec;
    if (end < text.size()) spec = run(whole.slice(end + 1, text.size()), depth - 1);
    out.append(format_value(value, spec, whole.is_foreign()));
  }

  Value lookup(std::string_view name) {
    const std::size_t first_end = std::min(name.find_first_of(".["), name.size());
    const std::string_view first = name.substr(0, first_end);
    Value value;
    const bool number = !first.empty() && first.find_first_not_of("0123456789") == std::string_view::npos;
    if (first.empty() || number) {
      if (first.empty() ? manual_ : automatic_ > 0)
        fail(ErrorCode::invalid_argument, "cannot switch between automatic field numbering and manual field specification");
      std::size_t at = 0;
      const std::int64_t index = first.empty() ? automatic_++ : read_number(first, at);
      manual_ = manual_ || !first.empty();
      if (index >= static_cast<std::int64_t>(arguments_.positional.size()))
        fail(ErrorCode::invalid_argument, "Replacement index {} out of range for positional args tuple", index);
      value = arguments_.positional[static_cast<std::size_t>(index)];
    } else {
      for (const auto& [key, named] : arguments_.named)
        if (key == first) value = named;
      if (value.is(Kind::missing)) fail(ErrorCode::invalid_argument, "no argument '{}' for the format string", utf8_excerpt(first));
    }
    std::string_view rest = name.substr(first_end);
    while (!rest.empty()) {
      if (rest[0] == '.') {
        const std::size_t end = std::min(rest.find_first_of(".[", 1), rest.size());
        if (end == 1) fail(ErrorCode::invalid_argument, "Empty attribute in format string");
        value = get_attribute(value, Value::text(std::string(rest.substr(1, end - 1))));
        rest.remove_prefix(end);
      } else if (rest[0] == '[') {
        const std::size_t end = rest.find(']');
        if (end == std::string_view::npos) fail(ErrorCode::invalid_argument, "Missing ']' in format string");
        const std::string_view key = rest.substr(1, end - 1);
        if (key.empty()) fail(ErrorCode::invalid_argument, "Empty attribute in format string");
        const bool digits = key.find_first_not_of("0123456789") == std::string_view::npos;
        value = get_item(value, digits ? Value::of(*parse_integer(key, 10)) : Value::text(std::string(key)));
        rest.remove_prefix(end + 1);
      } else {
        fail(ErrorCode::invalid_argument, "Only '.' or '[' may follow ']' in format field specifier");
      }
    }
    return value;
  }

  const Arguments& arguments_;
  std::int64_t automatic_ = 0;
  bool manual_ = false;
};
}  // namespace

Text brace_format(Interpreter&, const Text& format, Arguments& arguments) { return BraceFormatter(arguments).run(format, 2); }

}  // namespace lockstep::jinja
