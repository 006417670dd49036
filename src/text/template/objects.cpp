#include "text/template/objects.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "text/template/budget.h"
#include "text/template/iteration.h"

namespace lockstep::jinja {

Value make_list(List items, Kind kind) {
  RenderBudget::bytes(items.size() * sizeof(Value));
  auto object = std::make_shared<ListObject>();
  for (const Value& item : items) object->depth = std::max(object->depth, item.depth() + 1);
  RenderBudget::check_value_depth(object->depth);
  object->items = std::move(items);
  return Value::object(kind, std::move(object));
}

Value make_dict(Dict dict) {
  RenderBudget::bytes(dict.size() * 3 * sizeof(Value));
  auto object = std::make_shared<DictObject>();
  for (const auto& [key, value] : dict.entries()) object->depth = std::max({object->depth, key.depth() + 1, value.depth() + 1});
  RenderBudget::check_value_depth(object->depth);
  object->dict = std::move(dict);
  return Value::object(Kind::dict, std::move(object));
}

Value make_undefined(std::string why) {
  auto object = std::make_shared<UndefinedObject>();
  object->why = std::move(why);
  return Value::object(Kind::undefined, std::move(object));
}

Value make_function(std::string name, std::function<Value(Interpreter&, Arguments&)> call) {
  auto object = std::make_shared<FunctionObject>();
  object->name = std::move(name);
  object->call = std::move(call);
  return Value::object(Kind::function, std::move(object));
}

Value make_iterator(std::function<bool(Value&)> next, int depth) {
  auto object = std::make_shared<IteratorObject>();
  object->next = std::move(next);
  object->depth = depth + 1;
  RenderBudget::check_value_depth(object->depth);
  return Value::object(Kind::iterator, std::move(object));
}
IteratorObject::~IteratorObject() = default;

Value value_of_json(const nlohmann::ordered_json& json, bool foreign) {
  const RenderBudget::Nested nested;
  switch (json.type()) {
    case nlohmann::ordered_json::value_t::boolean:
      return Value::of(json.get<bool>()).marked(foreign);
    case nlohmann::ordered_json::value_t::number_integer:
      return Value::of(static_cast<Integer>(json.get<std::int64_t>())).marked(foreign);
    case nlohmann::ordered_json::value_t::number_unsigned:
      return Value::of(static_cast<Integer>(json.get<std::uint64_t>())).marked(foreign);
    case nlohmann::ordered_json::value_t::number_float:
      return Value::of(json.get<double>()).marked(foreign);
    case nlohmann::ordered_json::value_t::string:
      return Value::of(Text(utf8_lossy(json.get_ref<const std::string&>()), foreign));
    case nlohmann::ordered_json::value_t::array: {
      List items;
      for (const auto& item : json) items.push_back(value_of_json(item, foreign));
      return make_list(std::move(items));
    }
    case nlohmann::ordered_json::value_t::object: {
      Dict dict;
      for (const auto& [key, value] : json.items()) dict.set(Value::of(Text(utf8_lossy(key), foreign)), value_of_json(value, foreign));
      return make_dict(std::move(dict));
    }
    default:
      return Value::none().marked(foreign);
  }
}

void fail_undefined(const Value& undefined) { fail(ErrorCode::invalid_argument, "{}", undefined.as<UndefinedObject>().why); }

std::int64_t RangeObject::size() const {
  if (step > 0 ? start >= stop : start <= stop) return 0;
  return static_cast<std::int64_t>(step > 0 ? (stop - start - 1) / step + 1 : (start - stop - 1) / -step + 1);
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
  if (const auto known = jinja::length(iterable)) return *(known_length = known);
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
