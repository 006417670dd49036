// Python's bool(), hash(), ==, `is` and < on values of the template language. Each charges the rendering's budget (text/template/budget.h). One
// rendering, one thread.
//   if (truth(value) && !equals(value, other)) std::swap(value, other);
#pragma once
#include <cstddef>
#include <string_view>

#include "text/template/value.h"

namespace lockstep::jinja {

bool truth(const Value& value);
bool hashable(const Value& value);
std::size_t hash(const Value& value);  // hashable() first
bool equals(const Value& a, const Value& b);
bool same_object(const Value& a, const Value& b);  // Python's `is`
// What `in` and containers compare by.
bool same_or_equal(const Value& a, const Value& b);
// a < b; `op` is what an error calls it: "<". invalid_argument where Python cannot order the two. NaN is less than nothing.
bool less(const Value& a, const Value& b, std::string_view op);

}  // namespace lockstep::jinja
