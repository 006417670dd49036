#include "text/template/value.h"

#include <nlohmann/json.hpp>

#include <cmath>

#include "text/template/budget.h"

namespace lockstep::jinja {

Value Value::of(bool value) {
  Value v(Kind::boolean);
  v.boolean_ = value;
  return v;
}
Value Value::of(Integer value) {
  Value v(Kind::integer);
  v.integer_ = value;
  return v;
}
Value Value::of(double value) {
  Value v(Kind::real);
  v.real_ = value;
  return v;
}
Value Value::of(Text text) { return Value(Kind::text, std::make_shared<TextObject>(std::move(text))); }

Value Value::list(List items, Kind kind) {
  RenderBudget::bytes(items.size() * sizeof(Value));
  auto object = std::make_shared<ListObject>();
  for (const Value& item : items) object->depth = std::max(object->depth, item.depth() + 1);
  RenderBudget::check_value_depth(object->depth);
  object->items = std::move(items);
  return Value(kind, std::move(object));
}

Value Value::of(Dict dict) {
  RenderBudget::bytes(dict.size() * 3 * sizeof(Value));
  auto object = std::make_shared<DictObject>();
  for (const auto& [key, value] : dict.entries()) object->depth = std::max({object->depth, key.depth() + 1, value.depth() + 1});
  RenderBudget::check_value_depth(object->depth);
  object->dict = std::move(dict);
  return Value(Kind::dict, std::move(object));
}

Value Value::undefined(std::string why) {
  auto object = std::make_shared<UndefinedObject>();
  object->why = std::move(why);
  return Value(Kind::undefined, std::move(object));
}

Value Value::function(std::string name, std::function<Value(Interpreter&, Arguments&)> call) {
  auto object = std::make_shared<FunctionObject>();
  object->name = std::move(name);
  object->call = std::move(call);
  return Value(Kind::function, std::move(object));
}

Value Value::iterator(std::function<bool(Value&)> next, int depth) {
  auto object = std::make_shared<IteratorObject>();
  object->next = std::move(next);
  object->depth = depth + 1;
  RenderBudget::check_value_depth(object->depth);
  return Value(Kind::iterator, std::move(object));
}
IteratorObject::~IteratorObject() = default;

Value Value::of_json(const nlohmann::ordered_json& json, bool foreign) {
  const RenderBudget::Nested nested;
  switch (json.type()) {
    case nlohmann::ordered_json::value_t::boolean:
      return of(json.get<bool>()).marked(foreign);
    case nlohmann::ordered_json::value_t::number_integer:
      return of(static_cast<Integer>(json.get<std::int64_t>())).marked(foreign);
    case nlohmann::ordered_json::value_t::number_unsigned:
      return of(static_cast<Integer>(json.get<std::uint64_t>())).marked(foreign);
    case nlohmann::ordered_json::value_t::number_float:
      return of(json.get<double>()).marked(foreign);
    case nlohmann::ordered_json::value_t::string:
      return of(Text(utf8_lossy(json.get_ref<const std::string&>()), foreign));
    case nlohmann::ordered_json::value_t::array: {
      List items;
      for (const auto& item : json) items.push_back(of_json(item, foreign));
      return list(std::move(items));
    }
    case nlohmann::ordered_json::value_t::object: {
      Dict dict;
      for (const auto& [key, value] : json.items()) dict.set(of(Text(utf8_lossy(key), foreign)), of_json(value, foreign));
      return of(std::move(dict));
    }
    default:
      return none().marked(foreign);
  }
}

const Text& Value::text() const { return as<TextObject>().text; }
const List& Value::items() const { return as<ListObject>().items; }
const Dict& Value::dict() const { return as<DictObject>().dict; }

bool Value::truth() const {
  switch (kind_) {
    case Kind::missing:
    case Kind::undefined:
    case Kind::none:
      return false;
    case Kind::boolean:
      return boolean_;
    case Kind::integer:
      return integer_ != 0;
    case Kind::real:
      return real_ != 0;
    case Kind::iterator:
    case Kind::name_space:
    case Kind::macro:
    case Kind::function:
    case Kind::cycler:
    case Kind::joiner:
      return true;
    default:
      return *length() != 0;
  }
}

std::string_view Value::type_name() const {
  switch (kind_) {
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
      return text().markup() ? "Markup" : "str";
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
      return names[static_cast<int>(as<DictViewObject>().what)];
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

std::int64_t RangeObject::size() const {
  if (step > 0 ? start >= stop : start <= stop) return 0;
  return static_cast<std::int64_t>(step > 0 ? (stop - start - 1) / step + 1 : (start - stop - 1) / -step + 1);
}

bool Value::hashable() const {
  if (kind_ == Kind::list || kind_ == Kind::dict || kind_ == Kind::dict_view) return false;
  RenderBudget::step();
  if (kind_ == Kind::tuple)
    for (const Value& item : items())
      if (!item.hashable()) return false;
  return true;
}

std::size_t Value::hash() const {
  RenderBudget::step();
  switch (kind_) {
    case Kind::boolean:
    case Kind::integer:
      return static_cast<std::size_t>(integer()) * 0x9E3779B97F4A7C15u;
    case Kind::real:
      if (std::isfinite(real_) && std::fabs(real_) < 0x1p120 && real_ == std::trunc(real_)) return of(integer_of(real_)).hash();
      return std::hash<double>()(real_);
    case Kind::text:
      RenderBudget::search(text().bytes().size());
      return std::hash<std::string>()(text().bytes());
    case Kind::tuple: {
      std::size_t sum = 0x345678;
      for (const Value& item : items()) sum = (sum ^ item.hash()) * 1000003;
      return sum;
    }
    case Kind::none:
      return 7;
    case Kind::undefined:
      return 9;
    case Kind::range:
      return static_cast<std::size_t>(as<RangeObject>().size());
    default:
      return std::hash<const void*>()(object_.get());
  }
}

bool Value::same_object(const Value& other) const {
  if (kind_ != other.kind_) return false;
  switch (kind_) {
    case Kind::none:
      return true;
    case Kind::boolean:
      return boolean_ == other.boolean_;
    case Kind::integer:
      return integer_ == other.integer_ && integer_ >= -5 && integer_ <= 256;  // CPython's shared ones
    case Kind::real:
      return false;
    default:
      return object_ == other.object_;
  }
}

namespace {
bool integer_equals_real(Integer integer, double real) {
  return std::isfinite(real) && std::fabs(real) < 0x1p126 && real == std::trunc(real) && static_cast<Integer>(real) == integer;
}
}  // namespace

bool Value::equals(const Value& other) const {
  const RenderBudget::Nested nested;
  RenderBudget::step();
  if (is_number() && other.is_number()) {
    if (is_integral() && other.is_integral()) return integer() == other.integer();
    if (kind_ == Kind::real && other.kind_ == Kind::real) return real_ == other.real_;
    return kind_ == Kind::real ? integer_equals_real(other.integer(), real_) : integer_equals_real(integer(), other.real_);
  }
  if (kind_ != other.kind_) return false;
  switch (kind_) {
    case Kind::missing:
    case Kind::undefined:
    case Kind::none:
      return true;
    case Kind::text:
      RenderBudget::search(text().bytes().size());
      return text().bytes() == other.text().bytes();
    case Kind::list:
    case Kind::tuple: {
      const List &a = items(), &b = other.items();
      if (a.size() != b.size()) return false;
      for (std::size_t i = 0; i < a.size(); ++i)
        if (!a[i].same_object(b[i]) && !a[i].equals(b[i])) return false;
      return true;
    }
    case Kind::dict: {
      if (dict().size() != other.dict().size()) return false;
      for (const auto& [key, value] : dict().entries()) {
        const Value* there = other.dict().find(key);
        if (!there || (!there->same_object(value) && !there->equals(value))) return false;
      }
      return true;
    }
    case Kind::range: {
      const auto &a = as<RangeObject>(), &b = other.as<RangeObject>();
      const auto size = a.size();
      return size == b.size() && (size == 0 || (a.start == b.start && (size == 1 || a.step == b.step)));
    }
    default:
      return object_ == other.object_;
  }
}

bool Value::less(const Value& other, std::string_view op) const {
  const RenderBudget::Nested nested;
  RenderBudget::step();
  if (is_undefined()) fail_undefined(*this);
  if (other.is_undefined()) fail_undefined(other);
  if (is_integral() && other.is_integral()) return integer() < other.integer();
  if (is_number() && other.is_number()) {
    if (kind_ == Kind::real && other.kind_ == Kind::real) return real_ < other.real_;
    const double real = kind_ == Kind::real ? real_ : other.real_;
    if (std::isnan(real)) return false;
    if (std::fabs(real) >= 0x1p126) return kind_ == Kind::real ? real < 0 : real > 0;
    // Exact: the integer against the real's floor, then its fraction.
    const double floor = std::floor(real);
    const auto whole = static_cast<Integer>(floor);
    if (kind_ == Kind::real) return whole < other.integer();
    return integer() < whole || (integer() == whole && real > floor);
  }
  if (kind_ == Kind::text && other.kind_ == Kind::text) {
    RenderBudget::search(std::min(text().bytes().size(), other.text().bytes().size()));
    return text().bytes() < other.text().bytes();
  }
  if (is_sequence() && kind_ == other.kind_) {
    const List &a = items(), &b = other.items();
    for (std::size_t i = 0; i < a.size() && i < b.size(); ++i)
      if (!a[i].same_object(b[i]) && !a[i].equals(b[i])) return a[i].less(b[i], op);
    return a.size() < b.size();
  }
  fail(ErrorCode::invalid_argument, "'{}' not supported between instances of '{}' and '{}'", op, type_name(), other.type_name());
}

void fail_undefined(const Value& undefined) { fail(ErrorCode::invalid_argument, "{}", undefined.as<UndefinedObject>().why); }

// --- dictionaries

void Dict::set(const Value& key, Value value) {
  if (!key.hashable()) fail(ErrorCode::invalid_argument, "unhashable type: '{}'", key.type_name());
  if (auto* entry = const_cast<std::pair<Value, Value>*>(locate(key))) {
    entry->second = std::move(value);
    return;
  }
  constexpr std::size_t kSmall = 8;
  entries_.emplace_back(key, std::move(value));
  if (entries_.size() == kSmall + 1)
    for (std::size_t i = 0; i < entries_.size(); ++i) index_.emplace(entries_[i].first.hash(), i);
  else if (entries_.size() > kSmall) index_.emplace(key.hash(), entries_.size() - 1);
}

const std::pair<Value, Value>* Dict::locate(const Value& key) const {
  if (index_.empty()) {
    for (const auto& entry : entries_)
      if (entry.first.same_object(key) || entry.first.equals(key)) return &entry;
    return nullptr;
  }
  const auto [begin, end] = index_.equal_range(key.hash());
  for (auto it = begin; it != end; ++it) {
    const auto& entry = entries_[it->second];
    if (entry.first.same_object(key) || entry.first.equals(key)) return &entry;
  }
  return nullptr;
}

const Value* Dict::find(const Value& key) const {
  if (!key.hashable()) fail(ErrorCode::invalid_argument, "unhashable type: '{}'", key.type_name());
  const auto* entry = locate(key);
  return entry ? &entry->second : nullptr;
}

const Value* Dict::find(std::string_view key) const {
  RenderBudget::search(key.size());
  if (index_.empty()) {
    for (const auto& [name, value] : entries_)
      if (name.is(Kind::text) && name.text().bytes() == key) return &value;
    return nullptr;
  }
  const auto [begin, end] = index_.equal_range(std::hash<std::string_view>()(key));
  for (auto it = begin; it != end; ++it) {
    const auto& [name, value] = entries_[it->second];
    if (name.is(Kind::text) && name.text().bytes() == key) return &value;
  }
  return nullptr;
}

// --- arguments

std::vector<Value> Arguments::bind(std::string_view who, std::initializer_list<std::string_view> names, std::size_t required, bool by_name) {
  if (positional.size() > names.size()) fail(ErrorCode::invalid_argument, "{}() takes at most {} arguments ({} given)", who, names.size(), positional.size());
  std::vector<Value> values(positional);
  values.resize(names.size());
  for (auto& [name, value] : named) {
    std::size_t i = 0;
    while (i < names.size() && names.begin()[i] != name) ++i;
    if (i == names.size() || !by_name) fail(ErrorCode::invalid_argument, "{}() got an unexpected keyword argument '{}'", who, name);
    if (!values[i].is(Kind::missing)) fail(ErrorCode::invalid_argument, "{}() got multiple values for argument '{}'", who, name);
    values[i] = value;
  }
  for (std::size_t i = 0; i < required; ++i)
    if (values[i].is(Kind::missing)) fail(ErrorCode::invalid_argument, "{}() is missing its argument '{}'", who, names.begin()[i]);
  return values;
}

}  // namespace lockstep::jinja
