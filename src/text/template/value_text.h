// Values as text, as Python's str() and repr(), and what errors call their types.
//   out.append(str(value));
// Bytes keep whether they came from outside (text.h). One rendering, one thread.
#pragma once
#include "text/template/value.h"

namespace lockstep::jinja {

Text str(const Value& value);
Text repr(const Value& value);
std::string_view type_name(const Value& value);  // of type(value): "int"
// repr of a string with Python's quotes and escapes.
Text quoted(const Text& text);

}  // namespace lockstep::jinja
