// A value of the template language with Python's semantics: None, bool, int, float, str, list, tuple, dict, and what a
// template can hold besides (ranges, generators, namespaces, macros, functions). Values share what they hold and are
// never changed once made; namespaces, loops, cyclers and generators alone have state.
// Integers have 127 bits: more is an error, where Python would go on. Knows no syntax tree. One rendering, one thread.
//   Value v = Value::of_json(json, true); if (v.truth()) out.append(v.str());
#pragma once
#include <nlohmann/json_fwd.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/error.h"
#include "text/template/text.h"

namespace lockstep::jinja {

__extension__ typedef __int128 Integer;

class Value;
class Interpreter;
struct Arguments;
using List = std::vector<Value>;

enum class Kind : std::uint8_t {
  missing,  // an argument that was not given, a variable that was never set: never seen by a template
  undefined,
  none,
  boolean,
  integer,
  real,
  text,
  list,
  tuple,
  dict,
  range,
  dict_view,
  iterator,
  name_space,
  macro,
  function,
  loop,
  cycler,
  joiner,
};

struct Object {
  virtual ~Object() = default;
  int depth = 1;  // of values in values
};

class Dict;
struct RangeObject;
struct Iteration;

class Value {
 public:
  Value() = default;  // missing
  static Value none() { return Value(Kind::none); }
  static Value of(bool value);
  static Value of(Integer value);
  static Value of(double value);
  static Value of(Text text);
  static Value text(std::string bytes) { return of(Text(std::move(bytes))); }
  static Value list(List items, Kind kind = Kind::list);  // or tuple
  static Value tuple(List items) { return list(std::move(items), Kind::tuple); }
  static Value of(Dict dict);
  static Value undefined(std::string why);
  static Value object(Kind kind, std::shared_ptr<Object> object) { return Value(kind, std::move(object)); }
  static Value function(std::string name, std::function<Value(Interpreter&, Arguments&)> call);
  static Value iterator(std::function<bool(Value&)> next, int depth);
  // Strings, numbers, bools and nulls are foreign when `foreign`. invalid_argument when it is nested too deep.
  static Value of_json(const nlohmann::ordered_json& json, bool foreign);

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_undefined() const { return kind_ == Kind::undefined; }
  bool is_integral() const { return kind_ == Kind::integer || kind_ == Kind::boolean; }
  bool is_number() const { return is_integral() || kind_ == Kind::real; }
  bool is_sequence() const { return kind_ == Kind::list || kind_ == Kind::tuple; }
  // Of a number, a bool or None: it came from outside or was computed from what did, so its text counts as from outside too.
  bool foreign() const { return foreign_; }
  Value marked(bool foreign) && { return foreign_ = foreign_ || foreign, std::move(*this); }
  bool boolean() const { return boolean_; }
  Integer integer() const { return kind_ == Kind::boolean ? boolean_ : integer_; }
  double real() const { return kind_ == Kind::real ? real_ : static_cast<double>(integer()); }
  const Text& text() const;
  const List& items() const;  // of a list or tuple
  const Dict& dict() const;
  template <class T>
  T& as() const {
    return static_cast<T&>(*object_);
  }
  template <class T>
  std::shared_ptr<T> shared() const {
    return std::static_pointer_cast<T>(object_);
  }
  const Object* identity() const { return object_.get(); }
  int depth() const { return object_ ? object_->depth : 0; }

  bool truth() const;
  std::string_view type_name() const;  // Python's
  Text str() const;
  Text repr() const;
  std::optional<std::int64_t> length() const;  // none: it has no len()
  bool hashable() const;
  std::size_t hash() const;  // hashable() first
  bool equals(const Value& other) const;
  bool same_object(const Value& other) const;  // Python's `is`
  // <0, 0, >0; none when Python cannot order the two. NaN: see `less`.
  bool less(const Value& other, std::string_view op) const;  // `op` for the error: "<"

 private:
  explicit Value(Kind kind) : kind_(kind) {}
  Value(Kind kind, std::shared_ptr<Object> object) : kind_(kind), object_(std::move(object)) {}
  Kind kind_ = Kind::missing;
  bool boolean_ = false, foreign_ = false;
  double real_ = 0;
  Integer integer_ = 0;
  std::shared_ptr<Object> object_;
};

struct TextObject : Object {
  explicit TextObject(Text t) : text(std::move(t)) {}
  Text text;
};
struct ListObject : Object {
  List items;
  bool group = false;  // of the filter groupby: has .grouper and .list
};

// Insertion order kept, as Python's dict.
class Dict {
 public:
  void set(const Value& key, Value value);  // invalid_argument for a key without a hash
  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
  const std::vector<std::pair<Value, Value>>& entries() const { return entries_; }
  std::size_t size() const { return entries_.size(); }
  void clear() {
    entries_.clear();
    index_.clear();
  }

 private:
  const std::pair<Value, Value>* locate(const Value& key) const;
  std::vector<std::pair<Value, Value>> entries_;
  std::unordered_multimap<std::size_t, std::size_t> index_;  // hash -> entry, once there are several
};
struct DictObject : Object {
  Dict dict;
};
struct NamespaceObject : Object {
  Dict attributes;
};
struct RangeObject : Object {
  Integer start = 0, stop = 0, step = 1;
  std::int64_t size() const;
  Integer at(std::int64_t index) const { return start + step * index; }
};
struct DictViewObject : Object {
  enum class What { keys, values, items } what = What::keys;
  Value dict;
};
struct IteratorObject : Object {
  std::function<bool(Value&)> next;
  ~IteratorObject() override;
};
struct UndefinedObject : Object {
  std::string why;
};
struct FunctionObject : Object {
  std::string name;
  std::function<Value(Interpreter&, Arguments&)> call;
};
// What a macro shows of itself; the interpreter's own macros add what they run.
struct NamedMacro : Object {
  std::string name;  // empty: of a call block
};
struct CyclerObject : Object {
  List items;
  std::size_t position = 0;
};
struct JoinerObject : Object {
  Value separator;
  bool used = false;
};

// `loop` in a for block: looks one item ahead when asked to, and reads the rest when its length is asked for.
struct LoopObject : Object {
  Value iterable;
  std::function<bool(Value&)> rest;  // what follows `after`
  std::int64_t index0 = -1;
  Value after, current, before;  // missing where there is none
  List changed;
  bool changed_called = false;
  std::optional<std::int64_t> known_length;
  std::int64_t depth0 = 0;
  std::function<Value(const Value&)> recurse;  // empty: the block is not recursive
  bool next(Value& item);
  const Value& peek();
  std::int64_t length();
};

// What a call was given.
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
  // The values of `names` in order, missing where not given. Errors as Python's: too many, unknown, given twice, one of the
  // first `required` missing. `who` is the callee's name.
  std::vector<Value> bind(std::string_view who, std::initializer_list<std::string_view> names, std::size_t required, bool by_name = true);
};

// The items of what can be iterated, one at a time, as Python's iter().
class Cursor {
 public:
  explicit Cursor(const Value& iterable);  // invalid_argument "'int' object is not iterable"
  static bool can_iterate(const Value& value);
  bool next(Value& item);  // charges a step

 private:
  Value source_;
  std::size_t at_ = 0;
};
List to_list(const Value& iterable);
bool contains(const Value& container, const Value& item);  // Python's `in`
[[noreturn]] void fail_undefined(const Value& undefined);

// numbers.cpp
std::string integer_text(Integer value);
std::string real_text(double value);                                    // Python's repr(float)
std::optional<Integer> parse_integer(std::string_view text, int base);  // Python's int(text, base)
std::optional<double> parse_real(std::string_view text);                // Python's float(text)
Integer integer_of(double value);                                       // truncated; invalid_argument for NaN, infinity, too large
[[noreturn]] void fail_integer_range();

// repr of a string with Python's quotes and escapes.
Text quoted(const Text& text);

}  // namespace lockstep::jinja
