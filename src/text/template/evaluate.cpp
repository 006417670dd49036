#include "base/error.h"
#include "text/template/budget.h"
#include "text/template/comparison.h"
#include "text/template/interpreter.h"
#include "text/template/iteration.h"
#include "text/template/numbers.h"
#include "text/template/value_text.h"

namespace lockstep::jinja {

Value Interpreter::evaluate(const Expr& expr, Activation& at) {
  using Type = Expr::Type;
  const RenderBudget::Nested nested;
  RenderBudget::step();
  switch (expr.type) {
    case Type::constant:
      return expr.constant;
    case Type::name:
    case Type::namespace_target: {
      const Value& value = at.variable(expr.place);
      if (!value.is(Kind::missing)) return value;
      return make_undefined(fmt::format("'{}' is undefined", utf8_excerpt(expr.name)));
    }
    case Type::tuple:
    case Type::list: {
      List items;
      items.reserve(expr.parts.size());
      for (const ExprPtr& part : expr.parts) items.push_back(evaluate(*part, at));
      return make_list(std::move(items), expr.type == Type::tuple ? Kind::tuple : Kind::list);
    }
    case Type::dict: {
      Dict dict;
      for (std::size_t i = 0; i < expr.parts.size(); i += 2) {
        const Value key = evaluate(*expr.parts[i], at);
        dict.set(key, evaluate(*expr.parts[i + 1], at));
      }
      return make_dict(std::move(dict));
    }
    case Type::call:
      return evaluate_call(expr, at, nullptr);
    case Type::filter:
      return evaluate_filter(expr, at, nullptr);
    case Type::test: {
      const Value subject = evaluate(*expr.parts[0], at);
      Arguments arguments = evaluate_arguments(expr, at);
      line_ = expr.line;
      return Value::of(apply_test(expr.name, subject, arguments));
    }
    case Type::attribute: {
      const Value object = evaluate(*expr.parts[0], at);
      line_ = expr.line;
      return get_attribute(object, expr.constant);
    }
    case Type::item: {
      const Value object = evaluate(*expr.parts[0], at);
      const Expr& index = *expr.parts[1];
      if (index.type != Type::slice) {
        const Value key = evaluate(index, at);
        line_ = expr.line;
        return get_item(object, key);
      }
      const auto part = [&](std::size_t i) { return index.parts[i] ? evaluate(*index.parts[i], at) : Value::none(); };
      const Value start = part(0), stop = part(1), step = part(2);
      line_ = expr.line;
      return python_slice(object, start, stop, step);
    }
    case Type::slice:
      return Value::none();  // stands in an item alone
    case Type::compare:
      return evaluate_compare(expr, at);
    case Type::logical_and: {
      Value left = evaluate(*expr.parts[0], at);
      return truth(left) ? evaluate(*expr.parts[1], at) : left;
    }
    case Type::logical_or: {
      Value left = evaluate(*expr.parts[0], at);
      return truth(left) ? left : evaluate(*expr.parts[1], at);
    }
    case Type::logical_not:
      return Value::of(!truth(evaluate(*expr.parts[0], at)));
    case Type::negative:
    case Type::positive:
      return evaluate_unary(expr, at);
    case Type::binary: {
      const Value left = evaluate(*expr.parts[0], at), right = evaluate(*expr.parts[1], at);
      line_ = expr.line;
      return binary_operation(*this, expr.name, left, right);
    }
    case Type::concat: {
      List parts;
      for (const ExprPtr& part : expr.parts) parts.push_back(evaluate(*part, at));
      TextBuilder out;
      for (const Value& part : parts) out.append(str(part));
      return Value::of(out.take());
    }
    case Type::condition:
      if (truth(evaluate(*expr.parts[0], at))) return evaluate(*expr.parts[1], at);
      if (expr.parts[2]) return evaluate(*expr.parts[2], at);
      return make_undefined(fmt::format("the inline if-expression on line {} evaluated to false and no else section was defined.", expr.line));
  }
  return Value::none();
}

Value Interpreter::evaluate_unary(const Expr& expr, Activation& at) {
  const Value value = evaluate(*expr.parts[0], at);
  const bool negative = expr.type == Expr::Type::negative;
  if (value.is_undefined()) fail_undefined(value);
  if (value.is(Kind::real)) return negative ? Value::of(-value.real()).marked(value.foreign()) : value;
  if (value.is_integral()) {
    Integer result;
    if (__builtin_sub_overflow(Integer{0}, value.integer(), &result)) fail_integer_range();
    return Value::of(negative ? result : value.integer()).marked(value.foreign());
  }
  fail(ErrorCode::invalid_argument, "bad operand type for unary {}: '{}'", negative ? '-' : '+', type_name(value));
}

Value Interpreter::evaluate_compare(const Expr& expr, Activation& at) {
  Value left = evaluate(*expr.parts[0], at);
  for (std::size_t i = 0; i < expr.operators.size(); ++i) {
    Value right = evaluate(*expr.parts[i + 1], at);
    line_ = expr.line;
    if (!compare_operation(expr.operators[i], left, right)) return Value::of(false);
    left = std::move(right);
  }
  return Value::of(true);
}

// --- calls

Arguments Interpreter::evaluate_arguments(const Expr& expr, Activation& at) {
  Arguments arguments;
  for (const ExprPtr& argument : expr.arguments) arguments.positional.push_back(evaluate(*argument, at));
  for (const auto& [name, argument] : expr.keywords) arguments.named.emplace_back(name, evaluate(*argument, at));
  if (expr.star)
    for (Value& item : to_list(evaluate(*expr.star, at))) arguments.positional.push_back(std::move(item));
  if (expr.double_star) {
    const Value more = evaluate(*expr.double_star, at);
    if (!more.is(Kind::dict)) fail(ErrorCode::invalid_argument, "argument after ** must be a mapping, not {}", type_name(more));
    for (const auto& [key, value] : more.dict().entries()) {
      if (!key.is(Kind::text)) fail(ErrorCode::invalid_argument, "keywords must be strings");
      for (const auto& [name, other] : arguments.named)
        if (name == key.text().bytes()) fail(ErrorCode::invalid_argument, "got multiple values for keyword argument '{}'", utf8_excerpt(name));
      arguments.named.emplace_back(key.text().bytes(), value);
    }
  }
  return arguments;
}

Value Interpreter::evaluate_call(const Expr& expr, Activation& at, const Value* caller) {
  const Value callee = evaluate(*expr.parts[0], at);
  Arguments arguments = evaluate_arguments(expr, at);
  if (caller) {
    for (const auto& [name, value] : arguments.named)
      if (name == "caller") fail(ErrorCode::invalid_argument, "got multiple values for keyword argument 'caller'");
    arguments.named.emplace_back("caller", *caller);
  }
  line_ = expr.line;
  return call(callee, arguments);
}

Value Interpreter::evaluate_filter(const Expr& expr, Activation& at, const Value* subject) {
  // In a chain without a subject, the innermost filter gets the block's text.
  const Value value = expr.parts[0]
                          ? (subject && expr.parts[0]->type == Expr::Type::filter ? evaluate_filter(*expr.parts[0], at, subject) : evaluate(*expr.parts[0], at))
                          : *subject;
  Arguments arguments = evaluate_arguments(expr, at);
  line_ = expr.line;
  return apply_filter(expr.name, value, arguments);
}

Value Interpreter::apply_filter(const std::string& name, const Value& subject, Arguments& arguments) {
  const Filter filter = find_filter(name);
  if (!filter) fail(ErrorCode::invalid_argument, "No filter named '{}' found.", utf8_excerpt(name));
  return filter(*this, subject, arguments);
}

bool Interpreter::apply_test(const std::string& name, const Value& subject, Arguments& arguments) {
  const Test test = find_test(name);
  if (!test) fail(ErrorCode::invalid_argument, "No test named '{}' found.", utf8_excerpt(name));
  return test(*this, subject, arguments);
}

Value Interpreter::call(const Value& callee, Arguments& arguments) {
  const RenderBudget::Nested nested;
  RenderBudget::step();
  switch (callee.kind()) {
    case Kind::function: {
      const auto function = callee.shared<FunctionObject>();
      return function->call(*this, arguments);
    }
    case Kind::macro: {
      const auto macro = callee.shared<MacroObject>();
      return call_macro(*macro, arguments);
    }
    case Kind::joiner: {
      arguments.bind("joiner", {}, 0);
      auto& joiner = callee.as<JoinerObject>();
      return std::exchange(joiner.used, true) ? joiner.separator : Value::text("");
    }
    case Kind::loop: {
      const auto loop = callee.shared<LoopObject>();
      const std::vector<Value> values = arguments.bind("loop", {"iterable"}, 1);
      if (!loop->recurse) fail(ErrorCode::invalid_argument, "The loop must have the 'recursive' marker to be called recursively.");
      const auto recurse = loop->recurse;
      return recurse(values[0]);
    }
    case Kind::undefined:
      fail_undefined(callee);
    default:
      fail(ErrorCode::invalid_argument, "'{}' object is not callable", type_name(callee));
  }
}

Value Interpreter::make_macro(const Statement& node, Activation& at) {
  at.capture();
  auto macro = std::make_shared<MacroObject>();
  macro->name = node.name;
  macro->node = &node;
  macro->defined_in = &at;
  return Value::object(Kind::macro, std::move(macro));
}

Value Interpreter::call_macro(const MacroObject& macro, Arguments& arguments) {
  const Statement& node = *macro.node;
  const RenderBudget::Nested nested;
  auto owned = std::make_unique<Activation>(Activation{macro.defined_in, std::vector<Value>(static_cast<std::size_t>(node.function_slots))});
  Activation& at = *owned;
  const std::size_t count = node.parameters.size();
  const auto variable = [&](int slot) -> Value& { return at.slots[static_cast<std::size_t>(slot)]; };
  const auto take_named = [&](std::string_view name) {
    for (auto it = arguments.named.begin(); it != arguments.named.end(); ++it) {
      if (it->first != name) continue;
      Value value = std::move(it->second);
      arguments.named.erase(it);
      return value;
    }
    return Value();
  };

  std::vector<Value> values(arguments.positional.begin(),
                            arguments.positional.begin() + static_cast<std::ptrdiff_t>(std::min(count, arguments.positional.size())));
  bool found_caller = false;
  if (values.size() == count) {
    for (const ExprPtr& parameter : node.parameters) found_caller = found_caller || parameter->name == "caller";
  } else {
    for (std::size_t i = values.size(); i < count; ++i) {
      found_caller = found_caller || node.parameters[i]->name == "caller";
      values.push_back(take_named(node.parameters[i]->name));
    }
  }
  Value caller;
  if (node.accesses_caller && !found_caller) {
    caller = take_named("caller");
    if (caller.is(Kind::missing) || caller.is(Kind::none)) caller = make_undefined("No caller defined");
  }
  if (node.kwargs_slot < 0 && !arguments.named.empty())
    fail(ErrorCode::invalid_argument, "macro '{}' takes no keyword argument '{}'", utf8_excerpt(node.name), utf8_excerpt(arguments.named[0].first));
  if (node.varargs_slot < 0 && arguments.positional.size() > count)
    fail(ErrorCode::invalid_argument, "macro '{}' takes not more than {} argument(s)", utf8_excerpt(node.name), count);

  enter(node.scope, at);
  for (std::size_t i = 0; i < count; ++i) variable(node.parameter_slots[i]) = values[i];
  if (node.caller_slot >= 0) variable(node.caller_slot) = caller;
  if (node.kwargs_slot >= 0) {
    Dict named;
    for (auto& [name, value] : arguments.named) named.set(argument_name(name), value);
    variable(node.kwargs_slot) = make_dict(std::move(named));
  }
  if (node.varargs_slot >= 0) {
    const auto first = static_cast<std::ptrdiff_t>(std::min(count, arguments.positional.size()));
    variable(node.varargs_slot) = make_tuple(List(arguments.positional.begin() + first, arguments.positional.end()));
  }
  const int line = line_;
  const auto keep = [&] {
    if (at.captured) kept_.push_back(std::move(owned));
  };
  Value text;
  try {
    const std::size_t first_default = count - node.defaults.size();
    for (std::size_t i = 0; i < count; ++i) {
      Value& parameter = variable(node.parameter_slots[i]);
      if (!parameter.is(Kind::missing)) continue;
      if (i >= first_default) {
        Value value = evaluate(*node.defaults[i - first_default], at);
        variable(node.parameter_slots[i]) = std::move(value);
      } else {
        parameter = make_undefined(fmt::format("parameter '{}' was not provided", utf8_excerpt(node.parameters[i]->name)));
      }
    }
    captured_output(node.body, at, text);
  } catch (...) {
    keep();
    throw;
  }
  keep();
  line_ = line;
  return text;
}

}  // namespace lockstep::jinja
