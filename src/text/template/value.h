// A value of the template language: None, bool, int, float, str, list, tuple, dict, and what a template can hold besides (ranges, generators,
// namespaces, macros, functions). Values share what they hold and are never changed once made; namespaces, loops, cyclers and generators alone
// have state. What is shared is an object (objects.h); what Python does with values are functions (comparison.h, iteration.h, value_text.h).
// Integers have 127 bits: more is an error, where Python would go on. Knows no syntax tree. One rendering, one thread.
//   Value v = Value::of(Integer{3}).marked(foreign); if (truth(v)) out.append(str(v));
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/template/text.h"

namespace lockstep::jinja {

__extension__ typedef __int128 Integer;

class Value;
class Dict;
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

class Value {
 public:
  Value() = default;  // missing
  static Value none() { return Value(Kind::none); }
  static Value of(bool value);
  static Value of(Integer value);
  static Value of(double value);
  static Value of(Text text);
  static Value text(std::string bytes) { return of(Text(std::move(bytes))); }
  static Value object(Kind kind, std::shared_ptr<Object> object) { return Value(kind, std::move(object)); }  // as objects.h makes them

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
  const Object* identity() const { return object_.get(); }  // null: none
  int depth() const { return object_ ? object_->depth : 0; }

 private:
  explicit Value(Kind kind) : kind_(kind) {}
  Value(Kind kind, std::shared_ptr<Object> object) : kind_(kind), object_(std::move(object)) {}
  Kind kind_ = Kind::missing;
  bool boolean_ = false, foreign_ = false;
  double real_ = 0;
  Integer integer_ = 0;
  std::shared_ptr<Object> object_;
};

}  // namespace lockstep::jinja
