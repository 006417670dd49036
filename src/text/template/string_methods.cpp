#include <utf8proc.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "text/template/budget.h"
#include "text/template/builtins.h"
#include "text/template/comparison.h"
#include "text/template/iteration.h"
#include "text/template/value_text.h"

namespace lockstep::jinja {
namespace {
using Method = Value (*)(Interpreter& interpreter, const Value& self, Arguments& arguments);

Value keep_markup(Text text, const Value& self) {
  text.set_markup(self.text().markup());
  return Value::of(std::move(text));
}

Value list_of(std::vector<Text> parts) {
  List items;
  for (Text& part : parts) items.push_back(Value::of(std::move(part)));
  return make_list(std::move(items));
}

// Bytes of text[start:end] by Python's rules, none when start lies behind the end.
struct Clip {
  bool valid = true;
  std::size_t begin = 0, end = 0;
  std::int64_t first = 0;  // in characters
};
Clip clip(const Text& text, const Value& start, const Value& end) {
  const std::int64_t size = text.length();
  const auto bound = [&](const Value& v, std::int64_t otherwise) {
    if (v.is(Kind::missing) || v.is(Kind::none)) return otherwise;
    std::int64_t at = small_argument(v, "slice indices");
    if (at < 0) at = std::max<std::int64_t>(0, at + size);
    return at;
  };
  Clip c;
  c.first = bound(start, 0);
  const std::int64_t last = std::min(size, bound(end, size));
  if (c.first > last) {
    c.valid = false;
    return c;
  }
  c.begin = text.byte_of(c.first);
  c.end = text.byte_of(last);
  return c;
}

Value cased(const Value& self, Arguments& arguments, Casing casing) {
  arguments.bind("the method", {}, 0);
  return Value::of(change_case(self.text(), casing));
}
Value m_upper(Interpreter&, const Value& s, Arguments& a) { return cased(s, a, Casing::upper); }
Value m_lower(Interpreter&, const Value& s, Arguments& a) { return cased(s, a, Casing::lower); }
Value m_title(Interpreter&, const Value& s, Arguments& a) { return cased(s, a, Casing::title); }
Value m_capitalize(Interpreter&, const Value& s, Arguments& a) { return cased(s, a, Casing::capitalize); }
Value m_swapcase(Interpreter&, const Value& s, Arguments& a) { return cased(s, a, Casing::swap); }

Value stripped(const Value& self, Arguments& arguments, Side side) {
  const auto values = arguments.bind("strip", {"chars"}, 0, false);
  if (values[0].is(Kind::missing) || values[0].is(Kind::none)) return Value::of(strip(self.text(), side));
  return Value::of(strip(self.text(), side, text_argument(values[0], "strip arg")));
}
Value m_strip(Interpreter&, const Value& s, Arguments& a) { return stripped(s, a, Side::both); }
Value m_lstrip(Interpreter&, const Value& s, Arguments& a) { return stripped(s, a, Side::left); }
Value m_rstrip(Interpreter&, const Value& s, Arguments& a) { return stripped(s, a, Side::right); }

Value splitting(const Value& self, Arguments& arguments, bool from_right) {
  const auto values = arguments.bind("split", {"sep", "maxsplit"}, 0);
  const std::int64_t most = values[1].is(Kind::missing) ? -1 : small_argument(values[1], "maxsplit");
  if (values[0].is(Kind::missing) || values[0].is(Kind::none)) return list_of(split_white_space(self.text(), most, from_right));
  const std::string_view separator = text_argument(values[0], "separator");
  if (separator.empty()) fail(ErrorCode::invalid_argument, "empty separator");
  return list_of(split(self.text(), separator, most, from_right));
}
Value m_split(Interpreter&, const Value& s, Arguments& a) { return splitting(s, a, false); }
Value m_rsplit(Interpreter&, const Value& s, Arguments& a) { return splitting(s, a, true); }

Value m_splitlines(Interpreter&, const Value& self, Arguments& arguments) {
  const auto values = arguments.bind("splitlines", {"keepends"}, 0);
  return list_of(split_lines(self.text(), truth(values[0])));
}

Value affix(const Value& self, Arguments& arguments, bool front) {
  const auto values = arguments.bind(front ? "startswith" : "endswith", {"prefix", "start", "end"}, 1, false);
  const Clip c = clip(self.text(), values[1], values[2]);
  const auto fits = [&](const Value& part) {
    const std::string_view wanted = text_argument(part, front ? "startswith first arg" : "endswith first arg");
    if (!c.valid) return false;
    const std::string_view text = self.text().view().substr(c.begin, c.end - c.begin);
    RenderBudget::search(wanted.size());
    return front ? text.starts_with(wanted) : text.ends_with(wanted);
  };
  if (!values[0].is(Kind::tuple)) return Value::of(fits(values[0]));
  for (const Value& item : values[0].items())
    if (fits(item)) return Value::of(true);
  return Value::of(false);
}
Value m_startswith(Interpreter&, const Value& s, Arguments& a) { return affix(s, a, true); }
Value m_endswith(Interpreter&, const Value& s, Arguments& a) { return affix(s, a, false); }

std::int64_t found_at(const Value& self, Arguments& arguments, bool last) {
  const auto values = arguments.bind("find", {"sub", "start", "end"}, 1, false);
  const std::string_view wanted = text_argument(values[0], "the argument");
  const Text& text = self.text();
  const Clip c = clip(text, values[1], values[2]);
  if (!c.valid) return -1;
  const std::string_view part = text.view().substr(c.begin, c.end - c.begin);
  const std::size_t at = last ? find_last(part, wanted) : find_first(part, wanted);
  if (at == std::string_view::npos) return -1;
  return c.first + text.slice(c.begin, c.begin + at).length();
}
Value m_find(Interpreter&, const Value& s, Arguments& a) { return Value::of(Integer{found_at(s, a, false)}); }
Value m_rfind(Interpreter&, const Value& s, Arguments& a) { return Value::of(Integer{found_at(s, a, true)}); }
Value must_find(std::int64_t at) {
  if (at < 0) fail(ErrorCode::invalid_argument, "substring not found");
  return Value::of(Integer{at});
}
Value m_index(Interpreter&, const Value& s, Arguments& a) { return must_find(found_at(s, a, false)); }
Value m_rindex(Interpreter&, const Value& s, Arguments& a) { return must_find(found_at(s, a, true)); }

Value m_count(Interpreter&, const Value& self, Arguments& arguments) {
  const auto values = arguments.bind("count", {"sub", "start", "end"}, 1, false);
  const std::string_view wanted = text_argument(values[0], "the argument");
  const Clip c = clip(self.text(), values[1], values[2]);
  if (!c.valid) return Value::of(Integer{0});
  const std::string_view part = self.text().view().substr(c.begin, c.end - c.begin);
  if (wanted.empty()) return Value::of(Integer{self.text().slice(c.begin, c.end).length() + 1});
  Integer count = 0;
  for (std::size_t at = find_first(part, wanted); at != std::string_view::npos; at = find_first(part, wanted, at + wanted.size())) {
    RenderBudget::step();
    ++count;
  }
  return Value::of(count);
}

Value m_replace(Interpreter&, const Value& self, Arguments& arguments) {
  const auto values = arguments.bind("replace", {"old", "new", "count"}, 2, false);
  const std::string_view old = text_argument(values[0], "replace() argument 1");
  text_argument(values[1], "replace() argument 2");
  const std::int64_t most = values[2].is(Kind::missing) ? -1 : small_argument(values[2], "count");
  const Text with = self.text().markup() ? html_escape(values[1].text()) : values[1].text();
  return keep_markup(replace(self.text(), old, with, most), self);
}

Value m_join(Interpreter&, const Value& self, Arguments& arguments) {
  const Value iterable = arguments.bind("join", {"iterable"}, 1, false)[0];
  TextBuilder out;
  bool first = true;
  const bool markup = self.text().markup();
  for (const Value& item : to_list(iterable)) {
    if (!first) out.append(self.text());
    first = false;
    if (!markup) text_argument(item, "sequence item");
    out.append(markup ? html_escape(item.is(Kind::text) ? item.text() : str(item)) : item.text());
  }
  return keep_markup(out.take(), self);
}

Value parted(const Value& self, Arguments& arguments, bool last) {
  const Value separator = arguments.bind("partition", {"sep"}, 1, false)[0];
  const std::string_view wanted = text_argument(separator, "the separator");
  if (wanted.empty()) fail(ErrorCode::invalid_argument, "empty separator");
  const Text& text = self.text();
  const std::size_t at = last ? find_last(text.view(), wanted) : find_first(text.view(), wanted);
  const Value nothing = Value::of(text.slice(0, 0));
  if (at == std::string_view::npos) return last ? make_tuple({nothing, nothing, self}) : make_tuple({self, nothing, nothing});
  const std::size_t end = text.bytes().size();
  return make_tuple({Value::of(text.slice(0, at)), Value::of(text.slice(at, at + wanted.size())), Value::of(text.slice(at + wanted.size(), end))});
}
Value m_partition(Interpreter&, const Value& s, Arguments& a) { return parted(s, a, false); }
Value m_rpartition(Interpreter&, const Value& s, Arguments& a) { return parted(s, a, true); }

Value m_removeprefix(Interpreter&, const Value& self, Arguments& arguments) {
  const Value affix = arguments.bind("removeprefix", {"prefix"}, 1, false)[0];
  const std::string_view prefix = text_argument(affix, "removeprefix() argument");
  const Text& text = self.text();
  return Value::of(text.slice(text.view().starts_with(prefix) ? prefix.size() : 0, text.bytes().size()));
}
Value m_removesuffix(Interpreter&, const Value& self, Arguments& arguments) {
  const Value affix = arguments.bind("removesuffix", {"suffix"}, 1, false)[0];
  const std::string_view suffix = text_argument(affix, "removesuffix() argument");
  const Text& text = self.text();
  return Value::of(text.slice(0, text.bytes().size() - (text.view().ends_with(suffix) ? suffix.size() : 0)));
}

Value padded(const Value& self, Arguments& arguments, Side where) {
  const auto values = arguments.bind("the method", {"width", "fillchar"}, 1, false);
  const std::int64_t width = small_argument(values[0], "width");
  if (!values[1].is(Kind::missing)) text_argument(values[1], "the fill character");
  const Text fill = values[1].is(Kind::missing) ? Text(" ") : values[1].text();
  if (fill.length() != 1) fail(ErrorCode::invalid_argument, "The fill character must be exactly one character long");
  const Text& text = self.text();
  const std::int64_t missing = std::max<std::int64_t>(0, width - text.length());
  // CPython's rule for the odd one.
  const std::int64_t left = where == Side::left ? missing : where == Side::right ? 0 : missing / 2 + (missing & width & 1);
  RenderBudget::bytes(static_cast<std::size_t>(missing));
  TextBuilder out;
  for (std::int64_t i = 0; i < left; ++i) out.append(fill);
  out.append(text);
  for (std::int64_t i = left; i < missing; ++i) out.append(fill);
  return keep_markup(out.take(), self);
}
Value m_center(Interpreter&, const Value& s, Arguments& a) { return padded(s, a, Side::both); }
Value m_ljust(Interpreter&, const Value& s, Arguments& a) { return padded(s, a, Side::right); }
Value m_rjust(Interpreter&, const Value& s, Arguments& a) { return padded(s, a, Side::left); }

Value m_zfill(Interpreter&, const Value& self, Arguments& arguments) {
  const std::int64_t width = small_argument(arguments.bind("zfill", {"width"}, 1, false)[0], "width");
  const Text& text = self.text();
  const std::int64_t missing = std::max<std::int64_t>(0, width - text.length());
  const std::size_t sign = !text.empty() && (text.bytes()[0] == '+' || text.bytes()[0] == '-');
  RenderBudget::bytes(static_cast<std::size_t>(missing));
  TextBuilder out;
  out.append_slice(text, 0, sign);
  out.append(std::string(static_cast<std::size_t>(missing), '0'));
  out.append_slice(text, sign, text.bytes().size());
  return keep_markup(out.take(), self);
}

Value m_expandtabs(Interpreter&, const Value& self, Arguments& arguments) {
  const auto values = arguments.bind("expandtabs", {"tabsize"}, 0);
  const std::int64_t size = values[0].is(Kind::missing) ? 8 : small_argument(values[0], "tabsize");
  TextBuilder out;
  std::int64_t column = 0;
  each_character(self.text().view(), [&](std::uint32_t c, std::size_t begin, std::size_t end) {
    if (c == '\t') {
      if (size <= 0) return;
      const std::int64_t spaces = size - column % size;
      RenderBudget::bytes(static_cast<std::size_t>(spaces));
      out.append(std::string(static_cast<std::size_t>(spaces), ' '));
      column += spaces;
      return;
    }
    column = c == '\n' || c == '\r' ? 0 : column + 1;
    out.append_slice(self.text(), begin, end);
  });
  return keep_markup(out.take(), self);
}

Value m_format(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  if (self.text().markup()) fail(ErrorCode::unsupported, "format() of a safe string is not offered in chat templates");
  return Value::of(brace_format(interpreter, self.text(), arguments));
}
Value m_format_map(Interpreter& interpreter, const Value& self, Arguments& arguments) {
  const Value map = arguments.bind("format_map", {"mapping"}, 1, false)[0];
  if (!map.is(Kind::dict)) fail(ErrorCode::invalid_argument, "format_map() takes a mapping, not {}", type_name(map));
  Arguments named;
  for (const auto& [key, value] : map.dict().entries())
    if (key.is(Kind::text)) named.named.emplace_back(key.text().bytes(), value);
  return m_format(interpreter, self, named);
}

// --- predicates

utf8proc_category_t category(std::uint32_t c) { return static_cast<utf8proc_category_t>(utf8proc_category(static_cast<utf8proc_int32_t>(c))); }
bool is_alpha(std::uint32_t c) { return category(c) >= UTF8PROC_CATEGORY_LU && category(c) <= UTF8PROC_CATEGORY_LO; }
bool is_decimal(std::uint32_t c) { return category(c) == UTF8PROC_CATEGORY_ND; }
bool is_digit(std::uint32_t c) {
  return is_decimal(c) || c == 0xB2 || c == 0xB3 || c == 0xB9 || c == 0x2070 || (c >= 0x2074 && c <= 0x2079) || (c >= 0x2080 && c <= 0x2089) ||
         (c >= 0x2460 && c <= 0x2468) || (c >= 0x2474 && c <= 0x247C) || (c >= 0x2488 && c <= 0x2490);
}
bool is_numeric(std::uint32_t c) { return is_decimal(c) || category(c) == UTF8PROC_CATEGORY_NL || category(c) == UTF8PROC_CATEGORY_NO; }
bool is_upper(std::uint32_t c) { return category(c) == UTF8PROC_CATEGORY_LU; }
bool is_lower(std::uint32_t c) { return category(c) == UTF8PROC_CATEGORY_LL; }
bool is_titled(std::uint32_t c) { return category(c) == UTF8PROC_CATEGORY_LT; }

template <class P>
Value all_of(const Value& self, Arguments& arguments, const P& good, bool empty = false) {
  arguments.bind("the method", {}, 0);
  bool all = true;
  each_character(self.text().view(), [&](std::uint32_t c, std::size_t, std::size_t) { all = all && good(c); });
  return Value::of(all && (empty || !self.text().empty()));
}
Value m_isalpha(Interpreter&, const Value& s, Arguments& a) { return all_of(s, a, is_alpha); }
Value m_isdecimal(Interpreter&, const Value& s, Arguments& a) { return all_of(s, a, is_decimal); }
Value m_isdigit(Interpreter&, const Value& s, Arguments& a) { return all_of(s, a, is_digit); }
Value m_isnumeric(Interpreter&, const Value& s, Arguments& a) { return all_of(s, a, is_numeric); }
Value m_isspace(Interpreter&, const Value& s, Arguments& a) { return all_of(s, a, is_python_space); }
Value m_isascii(Interpreter&, const Value& s, Arguments& a) {
  return all_of(
      s, a, [](std::uint32_t c) { return c < 0x80; }, true);
}
Value m_isalnum(Interpreter&, const Value& s, Arguments& a) {
  return all_of(s, a, [](std::uint32_t c) { return is_alpha(c) || is_numeric(c); });
}
Value only_case(const Value& self, Arguments& arguments, bool (*wanted)(std::uint32_t), bool (*other)(std::uint32_t)) {
  arguments.bind("the method", {}, 0);
  bool some = false, wrong = false;
  each_character(self.text().view(), [&](std::uint32_t c, std::size_t, std::size_t) {
    some = some || wanted(c);
    wrong = wrong || other(c) || is_titled(c);
  });
  return Value::of(some && !wrong);
}
Value m_isupper(Interpreter&, const Value& s, Arguments& a) { return only_case(s, a, is_upper, is_lower); }
Value m_islower(Interpreter&, const Value& s, Arguments& a) { return only_case(s, a, is_lower, is_upper); }
Value m_istitle(Interpreter&, const Value& self, Arguments& arguments) {
  arguments.bind("istitle", {}, 0);
  bool some = false, wrong = false, cased = false;
  each_character(self.text().view(), [&](std::uint32_t c, std::size_t, std::size_t) {
    const bool begins = is_upper(c) || is_titled(c), follows = is_lower(c);
    wrong = wrong || (begins && cased) || (follows && !cased);
    some = some || begins || follows;
    cased = begins || follows;
  });
  return Value::of(some && !wrong);
}

const Table<Method>& methods() {
  static const Table<Method> table = {
      {"capitalize", m_capitalize},
      {"casefold", nullptr},
      {"center", m_center},
      {"count", m_count},
      {"encode", nullptr},
      {"endswith", m_endswith},
      {"expandtabs", m_expandtabs},
      {"find", m_find},
      {"format", m_format},
      {"format_map", m_format_map},
      {"index", m_index},
      {"isalnum", m_isalnum},
      {"isalpha", m_isalpha},
      {"isascii", m_isascii},
      {"isdecimal", m_isdecimal},
      {"isdigit", m_isdigit},
      {"isidentifier", nullptr},
      {"islower", m_islower},
      {"isnumeric", m_isnumeric},
      {"isprintable", nullptr},
      {"isspace", m_isspace},
      {"istitle", m_istitle},
      {"isupper", m_isupper},
      {"join", m_join},
      {"ljust", m_ljust},
      {"lower", m_lower},
      {"lstrip", m_lstrip},
      {"maketrans", nullptr},
      {"partition", m_partition},
      {"removeprefix", m_removeprefix},
      {"removesuffix", m_removesuffix},
      {"replace", m_replace},
      {"rfind", m_rfind},
      {"rindex", m_rindex},
      {"rjust", m_rjust},
      {"rpartition", m_rpartition},
      {"rsplit", m_rsplit},
      {"rstrip", m_rstrip},
      {"split", m_split},
      {"splitlines", m_splitlines},
      {"startswith", m_startswith},
      {"strip", m_strip},
      {"swapcase", m_swapcase},
      {"title", m_title},
      {"translate", nullptr},
      {"upper", m_upper},
      {"zfill", m_zfill},
  };
  return table;
}
}  // namespace

Value string_method(const Value& object, std::string_view name) {
  const auto row = methods().find(name);
  if (row == methods().end()) return {};
  return make_function(std::string(name), [object, method = row->second, name = row->first](Interpreter& interpreter, Arguments& arguments) {
    if (!method) fail(ErrorCode::unsupported, "the string method '{}' is not offered in chat templates", name);
    return method(interpreter, object, arguments);
  });
}

}  // namespace lockstep::jinja
