#include "base/error.h"
#include "text/template/builtins.h"
#include "text/template/comparison.h"
#include "text/template/interpreter.h"
#include "text/template/iteration.h"
#include "text/template/value_text.h"

namespace lockstep::jinja {
namespace {
void no_arguments(Arguments& arguments) { arguments.bind("the test", {}, 0); }
Value one_argument(Arguments& arguments) { return arguments.bind("the test", {"other"}, 1)[0]; }

template <bool (*P)(const Value&)>
bool plain(Interpreter&, const Value& subject, Arguments& arguments) {
  no_arguments(arguments);
  return P(subject);
}
template <char... Op>
bool comparing(Interpreter&, const Value& subject, Arguments& arguments) {
  static constexpr char op[] = {Op...};
  return compare_operation(std::string_view(op, sizeof...(Op)), subject, one_argument(arguments));
}
bool rest_is(Interpreter& interpreter, const Value& subject, const Value& by, Integer wanted) {
  return equals(binary_operation(interpreter, "%", subject, by), Value::of(wanted));
}

bool is_defined(const Value& v) { return !v.is_undefined(); }
bool is_undefined(const Value& v) { return v.is_undefined(); }
bool is_none(const Value& v) { return v.is(Kind::none); }
bool is_boolean(const Value& v) { return v.is(Kind::boolean); }
bool is_true(const Value& v) { return v.is(Kind::boolean) && v.boolean(); }
bool is_false(const Value& v) { return v.is(Kind::boolean) && !v.boolean(); }
bool is_integer(const Value& v) { return v.is(Kind::integer); }
bool is_float(const Value& v) { return v.is(Kind::real); }
bool is_number(const Value& v) { return v.is_number(); }
bool is_string(const Value& v) { return v.is(Kind::text); }
bool is_mapping(const Value& v) { return v.is(Kind::dict); }
bool is_sequence(const Value& v) { return v.is_undefined() || v.is(Kind::text) || v.is_sequence() || v.is(Kind::dict) || v.is(Kind::range); }
bool is_iterable(const Value& v) { return Cursor::can_iterate(v); }
bool is_callable(const Value& v) { return v.is(Kind::function) || v.is(Kind::macro) || v.is_undefined() || v.is(Kind::joiner) || v.is(Kind::loop); }
bool is_escaped(const Value& v) { return v.is(Kind::text) && v.text().markup(); }

bool case_test(Interpreter& interpreter, const Value& subject, Arguments& arguments, std::string_view method) {
  no_arguments(arguments);
  Arguments none;
  return truth(interpreter.call(string_method(Value::of(str(subject)), method), none));
}
bool t_lower(Interpreter& i, const Value& s, Arguments& a) { return case_test(i, s, a, "islower"); }
bool t_upper(Interpreter& i, const Value& s, Arguments& a) { return case_test(i, s, a, "isupper"); }

bool t_odd(Interpreter& i, const Value& s, Arguments& a) { return no_arguments(a), rest_is(i, s, Value::of(Integer{2}), 1); }
bool t_even(Interpreter& i, const Value& s, Arguments& a) { return no_arguments(a), rest_is(i, s, Value::of(Integer{2}), 0); }
bool t_divisibleby(Interpreter& i, const Value& s, Arguments& a) { return rest_is(i, s, a.bind("divisibleby", {"num"}, 1)[0], 0); }
bool t_sameas(Interpreter&, const Value& s, Arguments& a) { return same_object(s, one_argument(a)); }
bool t_in(Interpreter&, const Value& s, Arguments& a) { return contains(a.bind("in", {"seq"}, 1)[0], s); }
bool t_filter(Interpreter&, const Value& s, Arguments& a) {
  no_arguments(a);
  return s.is(Kind::text) && find_filter(s.text().view()) != nullptr;
}
bool t_test(Interpreter&, const Value& s, Arguments& a) {
  no_arguments(a);
  return s.is(Kind::text) && find_test(s.text().view()) != nullptr;
}

const Table<Test>& tests() {
  static const Table<Test> table = {
      {"odd", t_odd},
      {"even", t_even},
      {"divisibleby", t_divisibleby},
      {"defined", plain<is_defined>},
      {"undefined", plain<is_undefined>},
      {"filter", t_filter},
      {"test", t_test},
      {"none", plain<is_none>},
      {"boolean", plain<is_boolean>},
      {"false", plain<is_false>},
      {"true", plain<is_true>},
      {"integer", plain<is_integer>},
      {"float", plain<is_float>},
      {"lower", t_lower},
      {"upper", t_upper},
      {"string", plain<is_string>},
      {"mapping", plain<is_mapping>},
      {"number", plain<is_number>},
      {"sequence", plain<is_sequence>},
      {"iterable", plain<is_iterable>},
      {"callable", plain<is_callable>},
      {"sameas", t_sameas},
      {"escaped", plain<is_escaped>},
      {"in", t_in},
      {"==", comparing<'=', '='>},
      {"eq", comparing<'=', '='>},
      {"equalto", comparing<'=', '='>},
      {"!=", comparing<'!', '='>},
      {"ne", comparing<'!', '='>},
      {">", comparing<'>'>},
      {"gt", comparing<'>'>},
      {"greaterthan", comparing<'>'>},
      {">=", comparing<'>', '='>},
      {"ge", comparing<'>', '='>},
      {"<", comparing<'<'>},
      {"lt", comparing<'<'>},
      {"lessthan", comparing<'<'>},
      {"<=", comparing<'<', '='>},
      {"le", comparing<'<', '='>},
  };
  return table;
}
}  // namespace

Test find_test(std::string_view name) {
  const auto row = tests().find(name);
  return row == tests().end() ? nullptr : row->second;
}

void check_test_name(const std::string& name, int line, bool soft) {
  if (soft || find_test(name)) return;
  std::vector<std::string> names;
  for (const auto& [known, test] : tests()) names.emplace_back(known);
  fail(ErrorCode::invalid_argument, "chat template line {}: No test named '{}'{}", line, utf8_excerpt(name), did_you_mean(name, names));
}

}  // namespace lockstep::jinja
