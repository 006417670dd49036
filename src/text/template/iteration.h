// Iteration in a template: Python's iter(), len() and `in`. Each item charges a step of the rendering's budget (text/template/budget.h). One
// rendering, one thread.
//   Cursor cursor(list); for (Value item; cursor.next(item);) use(item);
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>

#include "text/template/value.h"

namespace lockstep::jinja {

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
std::optional<std::int64_t> length(const Value& value);    // none: it has no len()
bool contains(const Value& container, const Value& item);  // Python's `in`

}  // namespace lockstep::jinja
