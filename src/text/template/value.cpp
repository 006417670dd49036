#include "text/template/value.h"

#include "text/template/objects.h"

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

const Text& Value::text() const { return as<TextObject>().text; }
const List& Value::items() const { return as<ListObject>().items; }
const Dict& Value::dict() const { return as<DictObject>().dict; }

}  // namespace lockstep::jinja
