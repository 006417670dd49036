#include "text/template/iteration.h"

#include "base/error.h"
#include "text/template/budget.h"
#include "text/template/comparison.h"
#include "text/template/objects.h"
#include "text/template/value_text.h"

namespace lockstep::jinja {

std::optional<std::int64_t> length(const Value& value) {
  switch (value.kind()) {
    case Kind::missing:
    case Kind::undefined:
      return 0;
    case Kind::text:
      return value.text().length();
    case Kind::list:
    case Kind::tuple:
      return static_cast<std::int64_t>(value.items().size());
    case Kind::dict:
      return static_cast<std::int64_t>(value.dict().size());
    case Kind::range:
      return value.as<RangeObject>().size();
    case Kind::dict_view:
      return static_cast<std::int64_t>(value.as<DictViewObject>().dict.dict().size());
    case Kind::loop:
      return value.as<LoopObject>().length();
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
  if (!can_iterate(iterable)) fail(ErrorCode::invalid_argument, "'{}' object is not iterable", type_name(iterable));
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
      item = view.what == DictViewObject::What::keys ? key : view.what == DictViewObject::What::values ? value : make_tuple({key, value});
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
      item = make_tuple({value, source_});
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
      if (!item.is(Kind::text)) fail(ErrorCode::invalid_argument, "'in <string>' requires string as left operand, not {}", type_name(item));
      return find_first(container.text().view(), item.text().view()) != std::string_view::npos;
    case Kind::dict:
      return container.dict().find(item) != nullptr;
    case Kind::dict_view:
      if (container.as<DictViewObject>().what == DictViewObject::What::keys) return container.as<DictViewObject>().dict.dict().find(item) != nullptr;
      break;
    default:
      break;
  }
  if (!Cursor::can_iterate(container)) fail(ErrorCode::invalid_argument, "argument of type '{}' is not iterable", type_name(container));
  Cursor cursor(container);
  for (Value candidate; cursor.next(candidate);)
    if (same_or_equal(candidate, item)) return true;
  return false;
}

}  // namespace lockstep::jinja
