// The objects behind values of the template language that are shared, one class for each kind (text/template/value.h), and functions that make them.
// Containers charge the rendering's budget and refuse nesting that is too deep (text/template/budget.h). One rendering, one thread.
//   Value pair = make_tuple({key, value});
#pragma once
#include <nlohmann/json_fwd.hpp>

#include <functional>
#include <optional>
#include <string>

#include "text/template/dict.h"
#include "text/template/value.h"

namespace lockstep::jinja {

class Interpreter;
struct Arguments;

struct TextObject : Object {
  explicit TextObject(Text t) : text(std::move(t)) {}
  Text text;
};
struct ListObject : Object {
  List items;
  bool group = false;  // of the filter groupby: has .grouper and .list
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

Value make_list(List items, Kind kind = Kind::list);  // or tuple
inline Value make_tuple(List items) { return make_list(std::move(items), Kind::tuple); }
Value make_dict(Dict dict);
Value make_undefined(std::string why);
Value make_function(std::string name, std::function<Value(Interpreter&, Arguments&)> call);
Value make_iterator(std::function<bool(Value&)> next, int depth);
// `foreign`: its strings, numbers, bools and nulls count as from outside (text.h). invalid_argument when it is nested too deep.
Value value_of_json(const nlohmann::ordered_json& json, bool foreign);
[[noreturn]] void fail_undefined(const Value& undefined);

}  // namespace lockstep::jinja
