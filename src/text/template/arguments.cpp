#include "text/template/arguments.h"

#include "base/error.h"

namespace lockstep::jinja {

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
