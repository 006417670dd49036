// The arguments of a call in a template.
//   const auto values = arguments.bind("join", {"d", "attribute"}, 0);
// One rendering, one thread.
#pragma once
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/template/value.h"

namespace lockstep::jinja {

// The positional and named arguments of a call.
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
  // The values of `names` in order, missing where not given. Errors as Python's: too many, unknown, given twice, one of the
  // first `required` missing. `who` is the callee's name.
  std::vector<Value> bind(std::string_view who, std::initializer_list<std::string_view> names, std::size_t required, bool by_name = true);
};

}  // namespace lockstep::jinja
