#include <ctime>

#include "base/error.h"
#include "text/template/budget.h"
#include "text/template/builtins.h"
#include "text/template/interpreter.h"
#include "text/template/iteration.h"
#include "text/template/numbers.h"
#include "text/template/value_text.h"

namespace lockstep::jinja {
namespace {
// dict(mapping or pairs, **named)
Dict dict_of(Arguments& arguments) {
  Dict dict;
  if (arguments.positional.size() > 1) fail(ErrorCode::invalid_argument, "dict expected at most 1 argument, got {}", arguments.positional.size());
  if (!arguments.positional.empty()) {
    const Value& source = arguments.positional[0];
    if (source.is(Kind::dict)) {
      dict = source.dict();
    } else {
      Cursor cursor(source);
      for (Value item; cursor.next(item);) {
        const List pair = to_list(item);
        if (pair.size() != 2) fail(ErrorCode::invalid_argument, "dictionary update sequence element has length {}; 2 is required", pair.size());
        dict.set(pair[0], pair[1]);
      }
    }
  }
  for (auto& [name, value] : arguments.named) dict.set(argument_name(name), value);
  return dict;
}

Value g_dict(Interpreter&, Arguments& arguments) { return make_dict(dict_of(arguments)); }

Value g_namespace(Interpreter& interpreter, Arguments& arguments) {
  Dict attributes = dict_of(arguments);
  for (const auto& [key, value] : attributes.entries())
    if (key.is(Kind::text) && key.text().view().starts_with("_"))
      fail(ErrorCode::invalid_argument, "a namespace's attribute cannot begin with an underscore: '{}'", utf8_excerpt(key.text().view()));
  auto object = std::make_shared<NamespaceObject>();
  object->attributes = std::move(attributes);
  const Value value = Value::object(Kind::name_space, std::move(object));
  interpreter.own(value);
  return value;
}

Value g_range(Interpreter&, Arguments& arguments) {
  const auto values = arguments.bind("range", {"start", "stop", "step"}, 1, false);
  auto range = std::make_shared<RangeObject>();
  const auto integer = [](const Value& v) {
    if (!v.is_integral()) fail(ErrorCode::invalid_argument, "'{}' object cannot be interpreted as an integer", type_name(v));
    return v.integer();
  };
  if (values[1].is(Kind::missing)) {
    range->stop = integer(values[0]);
  } else {
    range->start = integer(values[0]);
    range->stop = integer(values[1]);
    if (!values[2].is(Kind::missing)) range->step = integer(values[2]);
  }
  if (range->step == 0) fail(ErrorCode::invalid_argument, "range() arg 3 must not be zero");
  constexpr Integer kFar = Integer{1} << 62;
  for (const Integer part : {range->start, range->stop, range->step})
    if (part > kFar || part < -kFar) fail_integer_range();
  constexpr std::int64_t kMostItems = 100000;  // of jinja2's sandbox
  if (range->size() > kMostItems) fail(ErrorCode::invalid_argument, "Range too big. The sandbox blocks ranges larger than MAX_RANGE ({}).", kMostItems);
  return Value::object(Kind::range, std::move(range));
}

Value g_raise_exception(Interpreter&, Arguments& arguments) {
  const Value message = arguments.bind("raise_exception", {"message"}, 1)[0];
  fail(ErrorCode::invalid_argument, "{}", str(message).bytes());
}

Value g_strftime_now(Interpreter& interpreter, Arguments& arguments) {
  const Value format = arguments.bind("strftime_now", {"format"}, 1)[0];
  text_argument(format, "strftime() argument 1");
  return Value::of(format_time(interpreter.unix_time(), format.text()));
}

Value g_cycler(Interpreter& interpreter, Arguments& arguments) {
  if (!arguments.named.empty()) fail(ErrorCode::invalid_argument, "cycler() got an unexpected keyword argument");
  if (arguments.positional.empty()) fail(ErrorCode::invalid_argument, "at least one item has to be provided");
  auto cycler = std::make_shared<CyclerObject>();
  cycler->items = arguments.positional;
  const Value value = Value::object(Kind::cycler, std::move(cycler));
  interpreter.own(value);
  return value;
}

Value g_joiner(Interpreter&, Arguments& arguments) {
  const auto values = arguments.bind("joiner", {"sep"}, 0);
  auto joiner = std::make_shared<JoinerObject>();
  joiner->separator = or_else(values[0], Value::text(", "));
  return Value::object(Kind::joiner, std::move(joiner));
}

Value g_lipsum(Interpreter&, Arguments&) { fail(ErrorCode::unsupported, "the function 'lipsum' is not offered in chat templates: it is random"); }
}  // namespace

Value global(std::string_view name) {
  static const std::map<std::string_view, Value> table = {
      {"dict", make_function("dict", g_dict)},
      {"namespace", make_function("namespace", g_namespace)},
      {"range", make_function("range", g_range)},
      {"raise_exception", make_function("raise_exception", g_raise_exception)},
      {"strftime_now", make_function("strftime_now", g_strftime_now)},
      {"cycler", make_function("cycler", g_cycler)},
      {"joiner", make_function("joiner", g_joiner)},
      {"lipsum", make_function("lipsum", g_lipsum)},
  };
  const auto row = table.find(name);
  return row == table.end() ? Value() : row->second;
}

Text format_time(std::int64_t unix_time, const Text& format) {
  const auto seconds = static_cast<std::time_t>(unix_time);
  std::tm local{};
  localtime_r(&seconds, &local);
  // Python fills in %f itself, and a time without a zone has an empty %z and %Z.
  std::string pattern;
  const std::string& bytes = format.bytes();
  if (bytes.size() > 4096) fail(ErrorCode::resource_exhausted, "a time format has {} bytes, allowed is up to 4096", bytes.size());
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] != '%' || i + 1 == bytes.size()) {
      pattern += bytes[i];
      continue;
    }
    const char c = bytes[++i];
    if (c == 'f') pattern += "000000";
    else if (c != 'z' && c != 'Z') pattern += {'%', c};
  }
  // One character more, so that an empty result can be told from a buffer that is too small.
  pattern += '.';
  std::string out(pattern.size() * 32 + 64, '\0');
  out.resize(std::strftime(out.data(), out.size(), pattern.c_str(), &local));
  if (!out.empty()) out.pop_back();
  return Text(std::move(out), format.is_foreign());
}

}  // namespace lockstep::jinja
