#include "text/template/value_text.h"

#include <utf8proc.h>

#include "base/error.h"
#include "text/template/budget.h"
#include "text/template/iteration.h"
#include "text/template/numbers.h"
#include "text/template/objects.h"

namespace lockstep::jinja {

namespace {
// What str.isprintable() says of one character.
bool printable(std::uint32_t c) {
  if (c < 0x7F) return c >= 0x20;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}

void quote(TextBuilder& out, const Text& text) {
  const std::string_view bytes = text.view();
  RenderBudget::search(bytes.size());
  const char mark = bytes.find('\'') != std::string_view::npos && bytes.find('"') == std::string_view::npos ? '"' : '\'';
  out.append(mark);
  std::size_t start = 0;
  each_character(bytes, [&](std::uint32_t c, std::size_t begin, std::size_t end) {
    std::string escape;
    if (c == static_cast<unsigned char>(mark) || c == '\\') escape = {'\\', static_cast<char>(c)};
    else if (c == '\n') escape = "\\n";
    else if (c == '\r') escape = "\\r";
    else if (c == '\t') escape = "\\t";
    else if (!printable(c)) escape = c < 0x100 ? fmt::format("\\x{:02x}", c) : c < 0x10000 ? fmt::format("\\u{:04x}", c) : fmt::format("\\U{:08x}", c);
    else return;
    out.append_slice(text, start, begin);
    out.append(escape, text.slice(begin, end).is_foreign());
    start = end;
  });
  out.append_slice(text, start, bytes.size());
  out.append(mark);
}

void write(TextBuilder& out, const Value& value, bool as_repr);

void write_items(TextBuilder& out, const List& items, std::string_view open, std::string_view close, bool comma_after_one) {
  out.append(open);
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i) out.append(", ");
    write(out, items[i], true);
  }
  if (comma_after_one && items.size() == 1) out.append(",");
  out.append(close);
}

void write_dict(TextBuilder& out, const Dict& dict) {
  out.append("{");
  bool first = true;
  for (const auto& [key, value] : dict.entries()) {
    if (!first) out.append(", ");
    first = false;
    write(out, key, true);
    out.append(": ");
    write(out, value, true);
  }
  out.append("}");
}

void write(TextBuilder& out, const Value& value, bool as_repr) {
  const RenderBudget::Nested nested;
  RenderBudget::step();
  switch (value.kind()) {
    case Kind::missing:
    case Kind::undefined:
      if (as_repr) out.append("Undefined");
      return;
    case Kind::none:
      return out.append("None", value.foreign());
    case Kind::boolean:
      return out.append(value.boolean() ? "True" : "False", value.foreign());
    case Kind::integer:
      return out.append(integer_text(value.integer()), value.foreign());
    case Kind::real:
      return out.append(real_text(value.real()), value.foreign());
    case Kind::text:
      if (!as_repr) return out.append(value.text());
      if (value.text().markup()) out.append("Markup(");
      quote(out, value.text());
      if (value.text().markup()) out.append(")");
      return;
    case Kind::list:
      return write_items(out, value.items(), "[", "]", false);
    case Kind::tuple:
      return write_items(out, value.items(), "(", ")", true);
    case Kind::dict:
      return write_dict(out, value.dict());
    case Kind::range: {
      const auto& range = value.as<RangeObject>();
      out.append("range(" + integer_text(range.start) + ", " + integer_text(range.stop));
      if (range.step != 1) out.append(", " + integer_text(range.step));
      return out.append(")");
    }
    case Kind::dict_view:
      out.append(type_name(value));
      return write_items(out, to_list(value), "([", "])", false);
    case Kind::name_space:
      out.append("<Namespace ");
      write_dict(out, value.as<NamespaceObject>().attributes);
      return out.append(">");
    case Kind::loop: {
      auto& loop = value.as<LoopObject>();
      return out.append(fmt::format("<LoopContext {}/{}>", loop.index0 + 1, loop.length()));
    }
    case Kind::macro: {
      const std::string& name = value.as<NamedMacro>().name;
      out.append("<Macro ");
      out.append(name.empty() ? Text("anonymous") : quoted(Text(name)));
      return out.append(">");
    }
    case Kind::function:
    case Kind::iterator:
    case Kind::cycler:
    case Kind::joiner:
      // Python shows an address here: no template means to.
      return out.append(fmt::format("<{} object>", type_name(value)));
  }
}
}  // namespace

Text quoted(const Text& text) {
  TextBuilder out;
  quote(out, text);
  return out.take();
}

Text str(const Value& value) {
  if (value.is(Kind::text)) {
    Text plain = value.text();
    plain.set_markup(false);
    return plain;
  }
  TextBuilder out;
  write(out, value, false);
  return out.take();
}

Text repr(const Value& value) {
  TextBuilder out;
  write(out, value, true);
  return out.take();
}

std::string_view type_name(const Value& value) {
  switch (value.kind()) {
    case Kind::missing:
    case Kind::undefined:
      return "Undefined";
    case Kind::none:
      return "NoneType";
    case Kind::boolean:
      return "bool";
    case Kind::integer:
      return "int";
    case Kind::real:
      return "float";
    case Kind::text:
      return value.text().markup() ? "Markup" : "str";
    case Kind::list:
      return "list";
    case Kind::tuple:
      return "tuple";
    case Kind::dict:
      return "dict";
    case Kind::range:
      return "range";
    case Kind::dict_view: {
      static constexpr std::string_view names[] = {"dict_keys", "dict_values", "dict_items"};
      return names[static_cast<int>(value.as<DictViewObject>().what)];
    }
    case Kind::iterator:
      return "generator";
    case Kind::name_space:
      return "Namespace";
    case Kind::macro:
      return "Macro";
    case Kind::function:
      return "function";
    case Kind::loop:
      return "LoopContext";
    case Kind::cycler:
      return "Cycler";
    case Kind::joiner:
      return "Joiner";
  }
  return "object";
}

}  // namespace lockstep::jinja
