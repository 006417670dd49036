#include <utf8proc.h>

#include "text/template/budget.h"
#include "text/template/value.h"

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
      out.append(value.type_name());
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
      return out.append(fmt::format("<{} object>", value.type_name()));
  }
}
}  // namespace

Text quoted(const Text& text) {
  TextBuilder out;
  quote(out, text);
  return out.take();
}

Text Value::str() const {
  if (kind_ == Kind::text) {
    Text plain = text();
    plain.set_markup(false);
    return plain;
  }
  TextBuilder out;
  write(out, *this, false);
  return out.take();
}

Text Value::repr() const {
  TextBuilder out;
  write(out, *this, true);
  return out.take();
}

std::optional<std::int64_t> Value::length() const {
  switch (kind_) {
    case Kind::missing:
    case Kind::undefined:
      return 0;
    case Kind::text:
      return text().length();
    case Kind::list:
    case Kind::tuple:
      return static_cast<std::int64_t>(items().size());
    case Kind::dict:
      return static_cast<std::int64_t>(dict().size());
    case Kind::range:
      return as<RangeObject>().size();
    case Kind::dict_view:
      return static_cast<std::int64_t>(as<DictViewObject>().dict.dict().size());
    case Kind::loop:
      return as<LoopObject>().length();
    default:
      return {};
  }
}

bool Cursor::can_iterate(const Value& value) {
  switch (value.kind()) {
    case Kind::missing:
    case Kind::undefined:
    case Kind::text:
    case Kind::list:
    case Kind::tuple:
    case Kind::dict:
    case Kind::range:
    case Kind::dict_view:
    case Kind::iterator:
    case Kind::loop:
      return true;
    default:
      return false;
  }
}

Cursor::Cursor(const Value& iterable) : source_(iterable) {
  if (!can_iterate(iterable)) fail(ErrorCode::invalid_argument, "'{}' object is not iterable", iterable.type_name());
}

bool Cursor::next(Value& item) {
  RenderBudget::step();
  switch (source_.kind()) {
    case Kind::text: {
      const Text& text = source_.text();
      if (at_ >= text.bytes().size()) return false;
      const std::size_t end = text.character_end(at_);
      item = Value::of(text.slice(at_, end));
      // Iterating over Markup gives plain strings.
      item.as<TextObject>().text.set_markup(false);
      at_ = end;
      return true;
    }
    case Kind::list:
    case Kind::tuple:
      if (at_ >= source_.items().size()) return false;
      item = source_.items()[at_++];
      return true;
    case Kind::dict:
      if (at_ >= source_.dict().size()) return false;
      item = source_.dict().entries()[at_++].first;
      return true;
    case Kind::range: {
      const auto& range = source_.as<RangeObject>();
      if (static_cast<std::int64_t>(at_) >= range.size()) return false;
      item = Value::of(range.at(static_cast<std::int64_t>(at_++)));
      return true;
    }
    case Kind::dict_view: {
      const auto& view = source_.as<DictViewObject>();
      const auto& entries = view.dict.dict().entries();
      if (at_ >= entries.size()) return false;
      const auto& [key, value] = entries[at_++];
      item = view.what == DictViewObject::What::keys ? key : view.what == DictViewObject::What::values ? value : Value::tuple({key, value});
      return true;
    }
    case Kind::iterator: {
      const RenderBudget::Nested nested;
      // Kept alive: what runs may drop the last other reference.
      const auto self = source_.shared<IteratorObject>();
      return self->next(item);
    }
    case Kind::loop: {
      const auto self = source_.shared<LoopObject>();
      Value value;
      if (!self->next(value)) return false;
      item = Value::tuple({value, source_});
      return true;
    }
    default:
      return false;
  }
}

List to_list(const Value& iterable) {
  List items;
  Cursor cursor(iterable);
  for (Value item; cursor.next(item);) {
    RenderBudget::bytes(sizeof(Value));
    items.push_back(std::move(item));
  }
  return items;
}

bool contains(const Value& container, const Value& item) {
  switch (container.kind()) {
    case Kind::text:
      if (!item.is(Kind::text)) fail(ErrorCode::invalid_argument, "'in <string>' requires string as left operand, not {}", item.type_name());
      return find_first(container.text().view(), item.text().view()) != std::string_view::npos;
    case Kind::dict:
      return container.dict().find(item) != nullptr;
    case Kind::dict_view:
      if (container.as<DictViewObject>().what == DictViewObject::What::keys) return container.as<DictViewObject>().dict.dict().find(item) != nullptr;
      break;
    default:
      break;
  }
  if (!Cursor::can_iterate(container)) fail(ErrorCode::invalid_argument, "argument of type '{}' is not iterable", container.type_name());
  Cursor cursor(container);
  for (Value candidate; cursor.next(candidate);)
    if (candidate.same_object(item) || candidate.equals(item)) return true;
  return false;
}

bool LoopObject::next(Value& item) {
  if (!after.is(Kind::missing)) {
    item = std::move(after);
    after = Value();
  } else if (!rest(item)) {
    return false;
  }
  ++index0;
  before = std::move(current);
  current = item;
  return true;
}

const Value& LoopObject::peek() {
  // What `rest` leaves behind when it has nothing more means nothing.
  if (Value item; after.is(Kind::missing) && rest(item)) after = std::move(item);
  return after;
}

std::int64_t LoopObject::length() {
  if (known_length) return *known_length;
  if (const auto length = iterable.length()) return *(known_length = length);
  auto items = std::make_shared<List>();
  for (Value item; rest(item);) {
    RenderBudget::bytes(sizeof(Value));
    items->push_back(std::move(item));
  }
  known_length = static_cast<std::int64_t>(items->size()) + index0 + 1 + !after.is(Kind::missing);
  rest = [items, at = std::size_t{0}](Value& item) mutable {
    if (at == items->size()) return false;
    item = (*items)[at++];
    return true;
  };
  return *known_length;
}

}  // namespace lockstep::jinja
