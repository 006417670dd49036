// The built-ins of the template language: filters, tests, global functions, attributes and methods of values. Each group is one file
// (filters_*.cpp, tests.cpp, globals.cpp, attributes.cpp, string_methods.cpp) with a table of names.
// Uses the interpreter only for callbacks. Tables are constant; any thread.
//   const Filter upper = find_filter("upper"); const Value range = global("range");
#pragma once
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "text/template/arguments.h"
#include "text/template/objects.h"

namespace lockstep::jinja {

using Filter = Value (*)(Interpreter& interpreter, const Value& subject, Arguments& arguments);
using Test = bool (*)(Interpreter& interpreter, const Value& subject, Arguments& arguments);
template <class F>
using Table = std::map<std::string_view, F>;

// Null when there is none of that name.
Filter find_filter(std::string_view name);
Test find_test(std::string_view name);
// Errors with a suggestion for an unknown name (unless `soft`: then it is an error only when used), unsupported for one that jinja2 has.
void check_filter_name(const std::string& name, int line, bool soft);
void check_test_name(const std::string& name, int line, bool soft);

// A variable that every template has (range, namespace, raise_exception, ...); missing when there is none.
Value global(std::string_view name);

// Python's getattr: missing where there is none; undefined where the sandbox forbids it.
Value python_attribute(const Value& object, std::string_view name);
// Python's obj[index]; missing for an index that is not there or of a wrong type.
Value python_item(const Value& object, const Value& index);
Value python_slice(const Value& object, const Value& start, const Value& stop, const Value& step);
// What a template means by object.name and object[index].
Value get_attribute(const Value& object, const Value& name);
Value get_item(const Value& object, const Value& index);

// Operators: "+", "-", "*", "/", "//", "%", "**"; "==", "!=", "<", "<=", ">", ">=", "in", "not in".
Value binary_operation(Interpreter& interpreter, std::string_view op, const Value& left, const Value& right);
bool compare_operation(std::string_view op, const Value& left, const Value& right);

// `text % arguments`, and str.format.
Text percent_format(Interpreter& interpreter, const Text& format, const Value& arguments);
Text brace_format(Interpreter& interpreter, const Text& format, Arguments& arguments);
// json.dumps as transformers' tojson filter calls it.
Value to_json(Interpreter& interpreter, const Value& subject, Arguments& arguments);
Value string_method(const Value& object, std::string_view name);  // missing when str has no such method
// strftime of the local time.
Text format_time(std::int64_t unix_time, const Text& format);

const Table<Filter>& text_filters();      // filters_text.cpp
const Table<Filter>& sequence_filters();  // filters_sequence.cpp

// Reads one argument.
std::string_view text_argument(const Value& value, std::string_view what);
Integer integer_argument(const Value& value, std::string_view what);
std::int64_t small_argument(const Value& value, std::string_view what);  // clamped to 64 bits
// A keyword as text: with `**` it may be the key of a dict from outside.
inline Value argument_name(const std::string& name) { return Value::of(Text(name, true)); }
inline Value or_else(const Value& value, Value otherwise) { return value.is(Kind::missing) ? std::move(otherwise) : value; }

}  // namespace lockstep::jinja
