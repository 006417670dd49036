#include <algorithm>
#include <cmath>
#include <set>

#include "base/error.h"
#include "text/template/budget.h"
#include "text/template/builtins.h"
#include "text/template/comparison.h"
#include "text/template/interpreter.h"
#include "text/template/iteration.h"
#include "text/template/numbers.h"
#include "text/template/value_text.h"

namespace lockstep::jinja {
namespace {
// What jinja2 calls soft_str: a string as it is (safe ones stay safe), anything else its str().
Text soft(const Value& value) { return value.is(Kind::text) ? value.text() : str(value); }

Value by_method(Interpreter& interpreter, const Value& subject, std::string_view method, Arguments arguments = {}) {
  return interpreter.call(string_method(Value::of(soft(subject)), method), arguments);
}
Value f_upper(Interpreter& i, const Value& s, Arguments& a) { return a.bind("upper", {}, 0), by_method(i, s, "upper"); }
Value f_lower(Interpreter& i, const Value& s, Arguments& a) { return a.bind("lower", {}, 0), by_method(i, s, "lower"); }
Value f_capitalize(Interpreter& i, const Value& s, Arguments& a) { return a.bind("capitalize", {}, 0), by_method(i, s, "capitalize"); }
Value f_string(Interpreter&, const Value& s, Arguments& a) { return a.bind("string", {}, 0), Value::of(soft(s)); }

Value f_trim(Interpreter& interpreter, const Value& subject, Arguments& arguments) {
  const auto values = arguments.bind("trim", {"chars"}, 0);
  Arguments chars;
  if (!values[0].is(Kind::missing)) chars.positional.push_back(values[0]);
  return by_method(interpreter, subject, "strip", std::move(chars));
}

Value f_center(Interpreter& interpreter, const Value& subject, Arguments& arguments) {
  const auto values = arguments.bind("center", {"width"}, 0);
  Arguments width;
  width.positional.push_back(or_else(values[0], Value::of(Integer{80})));
  return by_method(interpreter, subject, "center", std::move(width));
}

Value f_title(Interpreter&, const Value& subject, Arguments& arguments) {
  arguments.bind("title", {}, 0);
  const Text text = soft(subject);
  TextBuilder out;
  bool begins = true;
  each_character(text.view(), [&](std::uint32_t c, std::size_t begin, std::size_t end) {
    const bool gap = c == '-' || c == '(' || c == '{' || c == '[' || c == '<' || is_python_space(c);
    out.append(change_case(text.slice(begin, end), begins && !gap ? Casing::upper : Casing::lower));
    begins = gap;
  });
  return Value::of(out.take());
}

Value f_replace(Interpreter&, const Value& subject, Arguments& arguments) {
  const auto values = arguments.bind("replace", {"old", "new", "count"}, 2);
  const std::int64_t most = values[2].is(Kind::missing) || values[2].is(Kind::none) ? -1 : small_argument(values[2], "count");
  return Value::of(replace(str(subject), str(values[0]).view(), str(values[1]), most));
}

Value f_safe(Interpreter&, const Value& subject, Arguments& arguments) {
  arguments.bind("safe", {}, 0);
  Text text = soft(subject);
  text.set_markup(true);
  return Value::of(std::move(text));
}
Value f_escape(Interpreter&, const Value& s, Arguments& a) { return a.bind("escape", {}, 0), Value::of(html_escape(soft(s))); }
Value f_forceescape(Interpreter&, const Value& s, Arguments& a) { return a.bind("forceescape", {}, 0), Value::of(html_escape(str(s))); }

Value f_indent(Interpreter&, const Value& subject, Arguments& arguments) {
  const auto values = arguments.bind("indent", {"width", "first", "blank"}, 0);
  if (subject.is_undefined()) fail_undefined(subject);
  if (!subject.is(Kind::text)) fail(ErrorCode::invalid_argument, "indent takes a string, not {}", type_name(subject));
  Text indention;
  if (values[0].is(Kind::text)) {
    indention = values[0].text();
  } else {
    const std::int64_t width = values[0].is(Kind::missing) ? 4 : std::max<std::int64_t>(0, small_argument(values[0], "width"));
    RenderBudget::bytes(static_cast<std::size_t>(width));
    indention = Text(std::string(static_cast<std::size_t>(width), ' '));
  }
  TextBuilder whole;
  whole.append(subject.text());
  whole.append('\n');
  const bool blank = truth(values[2]);
  TextBuilder out;
  bool first = true;
  if (truth(values[1])) out.append(indention);
  for (const Text& line : split_lines(whole.take(), false)) {
    if (!first) {
      out.append('\n');
      if (blank || !line.empty()) out.append(indention);
    }
    out.append(line);
    first = false;
  }
  Text result = out.take();
  result.set_markup(subject.text().markup());
  return Value::of(std::move(result));
}

Value f_truncate(Interpreter&, const Value& subject, Arguments& arguments) {
  const auto values = arguments.bind("truncate", {"length", "killwords", "end", "leeway"}, 0);
  const std::int64_t most = values[0].is(Kind::missing) ? 255 : small_argument(values[0], "length");
  const Value end = or_else(values[2], Value::text("..."));
  text_argument(end, "truncate's end");
  const std::int64_t leeway = values[3].is(Kind::missing) || values[3].is(Kind::none) ? 5 : small_argument(values[3], "leeway");
  const std::int64_t end_length = end.text().length();
  if (most < end_length) fail(ErrorCode::invalid_argument, "expected length >= {}, got {}", end_length, most);
  if (leeway < 0) fail(ErrorCode::invalid_argument, "expected leeway >= 0, got {}", leeway);
  const auto size = length(subject);
  if (size && *size - leeway <= most) return subject;
  if (!subject.is(Kind::text)) fail(ErrorCode::invalid_argument, "truncate takes a string, not {}", type_name(subject));
  const Text& text = subject.text();
  Text cut = text.slice(0, text.byte_of(most - end_length));
  if (!truth(values[1])) {
    const auto words = split(cut, " ", 1, true);
    cut = words[0];
  }
  TextBuilder out;
  out.append(cut);
  out.append(end.text());
  return Value::of(out.take());
}

Value f_wordcount(Interpreter& interpreter, const Value& subject, Arguments& arguments) {
  arguments.bind("wordcount", {}, 0);
  const Text text = soft(subject);
  Integer count = 0;
  bool inside = false;
  each_character(text.view(), [&](std::uint32_t c, std::size_t begin, std::size_t end) {
    const bool word = c == '_' || truth(by_method(interpreter, Value::of(text.slice(begin, end)), "isalnum"));
    count += word && !inside;
    inside = word;
  });
  return Value::of(count);
}

Value f_format(Interpreter& interpreter, const Value& subject, Arguments& arguments) {
  if (!arguments.positional.empty() && !arguments.named.empty())
    fail(ErrorCode::invalid_argument, "can't handle positional and keyword arguments at the same time");
  if (arguments.named.empty()) return Value::of(percent_format(interpreter, soft(subject), make_tuple(arguments.positional)));
  Dict named;
  for (const auto& [name, value] : arguments.named) named.set(argument_name(name), value);
  return Value::of(percent_format(interpreter, soft(subject), make_dict(std::move(named))));
}

Value f_urlencode(Interpreter&, const Value& subject, Arguments& arguments) {
  arguments.bind("urlencode", {}, 0);
  const auto encode = [](const Text& text, bool query) {
    TextBuilder out;
    RenderBudget::read(8 * text.bytes().size());
    for (std::size_t i = 0; i < text.bytes().size(); ++i) {
      const char c = text.bytes()[i];
      const bool plain = std::isalnum(static_cast<unsigned char>(c)) || std::string_view("_.-~").find(c) != std::string_view::npos || (c == '/' && !query);
      if (plain) out.append_slice(text, i, i + 1);
      else if (c == ' ' && query) out.append("+");
      else out.append(fmt::format("%{:02X}", static_cast<unsigned char>(c)), text.slice(i, i + 1).is_foreign());
    }
    return out.take();
  };
  if (subject.is(Kind::text) || !Cursor::can_iterate(subject)) return Value::of(encode(str(subject), false));
  List items;
  if (subject.is(Kind::dict))
    for (const auto& [key, value] : subject.dict().entries()) items.push_back(make_tuple({key, value}));
  else items = to_list(subject);
  TextBuilder out;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const List pair = to_list(items[i]);
    if (pair.size() != 2) fail(ErrorCode::invalid_argument, "urlencode takes pairs, not {} values", pair.size());
    if (i) out.append("&");
    out.append(encode(str(pair[0]), true));
    out.append("=");
    out.append(encode(str(pair[1]), true));
  }
  return Value::of(out.take());
}

// --- numbers

bool is_foreign(const Value& value) { return value.is(Kind::text) ? value.text().is_foreign() : value.foreign(); }

Value f_int(Interpreter&, const Value& subject, Arguments& arguments) {
  const auto values = arguments.bind("int", {"default", "base"}, 0);
  const Value otherwise = or_else(values[0], Value::of(Integer{0}));
  if (subject.is_undefined()) fail_undefined(subject);
  const bool foreign = is_foreign(subject);
  if (subject.is_integral()) return Value::of(subject.integer()).marked(foreign);
  if (subject.is(Kind::real)) {
    if (std::isnan(subject.real())) return otherwise;
    return Value::of(integer_of(subject.real())).marked(foreign);
  }
  if (!subject.is(Kind::text)) return otherwise;
  const std::int64_t base = values[1].is(Kind::missing) ? 10 : small_argument(values[1], "base");
  if (base == 0 || (base >= 2 && base <= 36))
    if (const auto parsed = parse_integer(subject.text().view(), static_cast<int>(base))) return Value::of(*parsed).marked(foreign);
  const auto real = parse_real(subject.text().view());
  if (!real || std::isnan(*real) || std::isinf(*real)) return otherwise;
  return Value::of(integer_of(*real)).marked(foreign);
}

Value f_float(Interpreter&, const Value& subject, Arguments& arguments) {
  const auto values = arguments.bind("float", {"default"}, 0);
  if (subject.is_undefined()) fail_undefined(subject);
  if (subject.is_number()) return Value::of(subject.real()).marked(is_foreign(subject));
  if (subject.is(Kind::text))
    if (const auto parsed = parse_real(subject.text().view())) return Value::of(*parsed).marked(is_foreign(subject));
  return or_else(values[0], Value::of(0.0));
}

Value f_abs(Interpreter&, const Value& subject, Arguments& arguments) {
  arguments.bind("abs", {}, 0);
  if (subject.is_integral()) return Value::of(subject.integer() < 0 ? -subject.integer() : subject.integer()).marked(subject.foreign());
  if (subject.is(Kind::real)) return Value::of(std::fabs(subject.real())).marked(subject.foreign());
  fail(ErrorCode::invalid_argument, "bad operand type for abs(): '{}'", type_name(subject));
}

// round() of Python: half to even on the exact value.
Value rounded(const Value& subject, std::int64_t digits) {
  if (subject.is_integral()) {
    const Integer value = subject.integer();
    if (digits >= 0) return Value::of(value);
    if (digits < -37) return Value::of(Integer{0});
    Integer unit = 1;
    for (std::int64_t i = 0; i < -digits; ++i) unit *= 10;
    Integer rest = value % unit;
    if (rest < 0) rest += unit;
    const Integer low = value - rest;
    const bool up = rest * 2 > unit || (rest * 2 == unit && (low / unit) % 2 != 0);
    return Value::of(up ? low + unit : low);
  }
  const double value = subject.real();
  if (!std::isfinite(value) || digits > 323) return Value::of(value);
  if (digits < -308) return Value::of(std::copysign(0.0, value));
  if (digits < 0) {
    const double unit = std::pow(10.0, static_cast<double>(-digits));
    return Value::of(std::nearbyint(value / unit) * unit);
  }
  return Value::of(parse_real(fmt::format("{:.{}f}", value, digits)).value_or(value));
}

Value f_round(Interpreter& interpreter, const Value& subject, Arguments& arguments) {
  const auto values = arguments.bind("round", {"precision", "method"}, 0);
  const std::string method = values[1].is(Kind::missing) ? "common" : values[1].is(Kind::text) ? values[1].text().bytes() : "";
  if (method != "common" && method != "ceil" && method != "floor") fail(ErrorCode::invalid_argument, "method must be common, ceil or floor");
  if (subject.is_undefined()) fail_undefined(subject);
  if (!subject.is_number()) fail(ErrorCode::invalid_argument, "type {} doesn't define __round__ method", type_name(subject));
  const Value precision = or_else(values[0], Value::of(Integer{0}));
  if (method == "common") {
    if (precision.is(Kind::none)) {
      const Value whole = rounded(subject, 0);
      return Value::of(whole.is(Kind::real) ? integer_of(whole.real()) : whole.integer()).marked(subject.foreign());
    }
    return rounded(subject, small_argument(precision, "precision")).marked(subject.foreign());
  }
  const Value scale = binary_operation(interpreter, "**", Value::of(Integer{10}), precision);
  const Value scaled = binary_operation(interpreter, "*", subject, scale);
  const Value whole =
      scaled.is_integral() ? scaled : Value::of(integer_of(method == "ceil" ? std::ceil(scaled.real()) : std::floor(scaled.real()))).marked(scaled.foreign());
  return binary_operation(interpreter, "/", whole, scale);
}

// --- any value

Value f_default(Interpreter&, const Value& subject, Arguments& arguments) {
  const auto values = arguments.bind("default", {"default_value", "boolean"}, 0);
  if (subject.is_undefined() || (truth(values[1]) && !truth(subject))) return or_else(values[0], Value::text(""));
  return subject;
}

Value f_length(Interpreter&, const Value& subject, Arguments& arguments) {
  arguments.bind("len", {}, 0);
  const auto size = length(subject);
  if (!size) fail(ErrorCode::invalid_argument, "object of type '{}' has no len()", type_name(subject));
  return Value::of(Integer{*size});
}

Value f_attr(Interpreter&, const Value& subject, Arguments& arguments) {
  const Value name = arguments.bind("attr", {"name"}, 1)[0];
  text_argument(name, "attribute name");
  Value found = python_attribute(subject, name.text().view());
  if (!found.is(Kind::missing)) return found;
  return make_undefined(fmt::format("'{}' object has no attribute '{}'", type_name(subject), utf8_excerpt(name.text().view())));
}
}  // namespace

const Table<Filter>& text_filters() {
  static const Table<Filter> table = {
      {"abs", f_abs},
      {"attr", f_attr},
      {"capitalize", f_capitalize},
      {"center", f_center},
      {"count", f_length},
      {"d", f_default},
      {"default", f_default},
      {"e", f_escape},
      {"escape", f_escape},
      {"float", f_float},
      {"forceescape", f_forceescape},
      {"format", f_format},
      {"indent", f_indent},
      {"int", f_int},
      {"length", f_length},
      {"lower", f_lower},
      {"replace", f_replace},
      {"round", f_round},
      {"safe", f_safe},
      {"string", f_string},
      {"title", f_title},
      {"tojson", to_json},
      {"trim", f_trim},
      {"truncate", f_truncate},
      {"upper", f_upper},
      {"urlencode", f_urlencode},
      {"wordcount", f_wordcount},
  };
  return table;
}

Filter find_filter(std::string_view name) {
  for (const Table<Filter>* table : {&text_filters(), &sequence_filters()})
    if (const auto row = table->find(name); row != table->end()) return row->second;
  return nullptr;
}

void check_filter_name(const std::string& name, int line, bool soft) {
  if (find_filter(name)) return;
  static const std::set<std::string> refused = {"filesizeformat", "pprint", "random", "striptags", "urlize", "wordwrap", "xmlattr"};
  if (refused.count(name)) fail(ErrorCode::unsupported, "chat template line {}: the filter '{}' is not offered", line, name);
  if (soft) return;
  std::vector<std::string> names;
  for (const Table<Filter>* table : {&text_filters(), &sequence_filters()})
    for (const auto& [known, filter] : *table) names.emplace_back(known);
  fail(ErrorCode::invalid_argument, "chat template line {}: No filter named '{}'{}", line, utf8_excerpt(name), did_you_mean(name, names));
}

}  // namespace lockstep::jinja
