#include "text/template/interpreter.h"

#include "base/error.h"
#include "text/template/budget.h"
#include "text/template/comparison.h"
#include "text/template/iteration.h"
#include "text/template/value_text.h"

namespace lockstep::jinja {

Interpreter::Interpreter(const Template& parsed, const Dict& variables, std::int64_t unix_time)
    : parsed_(parsed), variables_(variables), unix_time_(unix_time) {}

Interpreter::~Interpreter() {
  for (const Value& value : stateful_) {
    if (value.is(Kind::name_space)) value.as<NamespaceObject>().attributes.clear();
    if (value.is(Kind::cycler)) value.as<CyclerObject>().items.clear();
    if (!value.is(Kind::loop)) continue;
    auto& loop = value.as<LoopObject>();
    loop.rest = [](Value&) { return false; };
    loop.recurse = nullptr;
    loop.iterable = loop.after = loop.current = loop.before = Value();
    loop.changed.clear();
  }
  for (const auto& activation : kept_) activation->slots.clear();
}

Rendering Interpreter::render(std::size_t most_output_bytes) {
  root_out_.limit(most_output_bytes);
  out_ = &root_out_;
  kept_.push_back(std::make_unique<Activation>(Activation{nullptr, std::vector<Value>(static_cast<std::size_t>(parsed_.slots)), true}));
  Activation& root = *kept_.back();
  try {
    enter(parsed_.scope, root);
    execute(parsed_.body, root);
  } catch (Error& e) {
    e.add_context(fmt::format("rendering the chat template, line {}", line_));
    throw;
  }
  return {root_out_.take(), std::move(generations_)};
}

// --- variables

Value Interpreter::resolve(const std::string& name) {
  if (const Value* found = variables_.find(std::string_view(name))) return *found;
  return global(name);
}

Value& Interpreter::Activation::variable(const Place& place) {
  Activation* activation = this;
  for (int i = 0; i < place.hops; ++i) activation = activation->outer;
  return activation->slots[static_cast<std::size_t>(place.slot)];
}

void Interpreter::enter(const Scope& scope, Activation& at) {
  for (const ScopeLoad& load : scope.loads) {
    Value& variable = at.slots[static_cast<std::size_t>(load.slot)];
    switch (load.how) {
      case ScopeLoad::How::resolve:
        variable = resolve(load.name);
        break;
      case ScopeLoad::How::alias:
        variable = Value(at.variable(load.from));
        break;
      case ScopeLoad::How::missing:
        variable = Value();
        break;
    }
  }
}

void Interpreter::Activation::leave(const Scope& scope) {
  for (const int index : scope.slots) slots[static_cast<std::size_t>(index)] = Value();
}

void Interpreter::Activation::capture() {
  for (Activation* activation = this; activation; activation = activation->outer) activation->captured = true;
}

// --- statements

void Interpreter::print(const Value& value) {
  if (value.is(Kind::text)) out_->append(value.text());
  else out_->append(str(value));
}

Interpreter::Flow Interpreter::execute(const Body& body, Activation& at) {
  for (const StatementPtr& node : body)
    if (const Flow flow = execute(*node, at); flow != Flow::normal) return flow;
  return Flow::normal;
}

Interpreter::Flow Interpreter::captured_output(const Body& body, Activation& at, Value& text) {
  TextBuilder buffer;
  TextBuilder* const outer = std::exchange(out_, &buffer);
  Flow flow;
  try {
    flow = execute(body, at);
  } catch (...) {
    out_ = outer;
    throw;
  }
  out_ = outer;
  text = Value::of(buffer.take());
  return flow;
}

Interpreter::Flow Interpreter::execute(const Statement& node, Activation& at) {
  using Type = Statement::Type;
  const RenderBudget::Nested nested;
  RenderBudget::step();
  line_ = node.line;
  switch (node.type) {
    case Type::output:
      for (const ExprPtr& e : node.expressions) {
        if (e->type == Expr::Type::constant && e->constant.is(Kind::text)) out_->append(e->constant.text());
        else print(evaluate(*e, at));
      }
      return Flow::normal;
    case Type::condition: {
      if (truth(evaluate(*node.expression, at))) return execute(node.body, at);
      for (const StatementPtr& elif : node.elifs) {
        line_ = elif->line;
        if (truth(evaluate(*elif->expression, at))) return execute(elif->body, at);
      }
      return execute(node.otherwise, at);
    }
    case Type::for_loop:
      return execute_loop(node, at);
    case Type::macro:
      at.variable(node.place) = make_macro(node, at);
      return Flow::normal;
    case Type::call_block: {
      const Value caller = make_macro(node, at);
      print(evaluate_call(*node.expression, at, &caller));
      return Flow::normal;
    }
    case Type::generation:
      generation(node, at);
      return Flow::normal;
    case Type::set: {
      if (node.target->type == Expr::Type::namespace_target && !at.variable(node.target->place).is(Kind::name_space))
        fail(ErrorCode::invalid_argument, "cannot assign attribute on non-namespace object");
      Value value = evaluate(*node.expression, at);
      assign(*node.target, std::move(value), at);
      return Flow::normal;
    }
    case Type::set_block: {
      enter(node.scope, at);
      Value text;
      if (const Flow flow = captured_output(node.body, at, text); flow != Flow::normal) return flow;
      if (node.expression) text = evaluate_filter(*node.expression, at, &text);
      assign(*node.target, std::move(text), at);
      at.leave(node.scope);
      return Flow::normal;
    }
    case Type::filter_block: {
      enter(node.scope, at);
      Value text;
      if (const Flow flow = captured_output(node.body, at, text); flow != Flow::normal) return flow;
      print(evaluate_filter(*node.expression, at, &text));
      at.leave(node.scope);
      return Flow::normal;
    }
    case Type::with: {
      enter(node.scope, at);
      for (std::size_t i = 0; i < node.targets.size(); ++i) assign(*node.targets[i], evaluate(*node.expressions[i], at), at);
      const Flow flow = execute(node.body, at);
      at.leave(node.scope);
      return flow;
    }
    case Type::break_loop:
      return Flow::break_loop;
    case Type::continue_loop:
      return Flow::continue_loop;
  }
  return Flow::normal;
}

void Interpreter::generation(const Statement& node, Activation& at) {
  const Value macro = make_macro(node, at);
  Arguments none;
  const std::size_t start = root_out_.size();
  const Value text = call_macro(macro.as<MacroObject>(), none);
  generations_.push_back({start, start + text.text().bytes().size()});
  print(text);
}

void Interpreter::assign(const Expr& target, Value value, Activation& at) {
  if (target.type == Expr::Type::name) {
    at.variable(target.place) = std::move(value);
    return;
  }
  if (target.type == Expr::Type::namespace_target) {
    const Value& holder = at.variable(target.place);
    if (!holder.is(Kind::name_space)) fail(ErrorCode::invalid_argument, "cannot assign attribute on non-namespace object");
    const std::string& name = target.constant.text().bytes();
    if (name.starts_with("_")) fail(ErrorCode::invalid_argument, "a namespace's attribute cannot begin with an underscore: '{}'", utf8_excerpt(name));
    holder.as<NamespaceObject>().attributes.set(target.constant, std::move(value));
    return;
  }
  const List items = to_list(value);
  if (items.size() != target.parts.size())
    fail(ErrorCode::invalid_argument, "{} values to unpack (expected {}, got {})", items.size() < target.parts.size() ? "not enough" : "too many",
         target.parts.size(), items.size());
  for (std::size_t i = 0; i < items.size(); ++i) assign(*target.parts[i], items[i], at);
}

// --- loops

Interpreter::Flow Interpreter::execute_loop(const Statement& node, Activation& at) {
  if (!node.recursive) return loop_over(node, evaluate(*node.expression, at), at, at, 0);
  // The loop is a function of what it iterates; `loop(items)` inside calls it again.
  at.capture();
  print(recurse_loop(node, evaluate(*node.expression, at), at, 0));
  return Flow::normal;
}

Interpreter::Flow Interpreter::loop_over(const Statement& node, const Value& source, Activation& outer, Activation& at, std::int64_t depth) {
  Value iterable = source;
  if (node.filter_test) {
    if (node.extended) outer.capture();
    auto cursor = std::make_shared<Cursor>(source);
    iterable = make_iterator(
        [this, &node, &outer, cursor, entered = false](Value& item) mutable {
          if (!entered) enter(node.test_scope, outer);
          entered = true;
          while (cursor->next(item)) {
            if (node.filter_target->type == Expr::Type::tuple) item = make_tuple(to_list(item));
            assign(*node.filter_target, item, outer);
            if (truth(evaluate(*node.filter_test, outer))) return true;
          }
          return false;
        },
        source.depth());
  }
  auto cursor = std::make_shared<Cursor>(iterable);
  std::shared_ptr<LoopObject> loop;
  if (node.extended) {
    loop = std::make_shared<LoopObject>();
    loop->iterable = iterable;
    loop->depth0 = depth;
    loop->rest = [cursor](Value& item) { return cursor->next(item); };
    if (node.recursive) loop->recurse = [this, &node, &outer, depth](const Value& inner) { return recurse_loop(node, inner, outer, depth + 1); };
    const Value shown = Value::object(Kind::loop, loop);
    own(shown);
    at.variable(node.loop_place) = shown;
  }
  bool ran = false;
  Flow flow = Flow::normal;
  for (Value item; loop ? loop->next(item) : cursor->next(item);) {
    assign(*node.target, item, at);
    enter(node.scope, at);
    ran = true;
    flow = execute(node.body, at);
    if (flow == Flow::break_loop) break;
  }
  at.leave(node.scope);
  if (ran || node.otherwise.empty()) return Flow::normal;
  enter(node.else_scope, at);
  flow = execute(node.otherwise, at);
  at.leave(node.else_scope);
  return flow;
}

Value Interpreter::recurse_loop(const Statement& node, const Value& iterable, Activation& outer, std::int64_t depth) {
  const RenderBudget::Nested nested;
  kept_.push_back(std::make_unique<Activation>(Activation{&outer, std::vector<Value>(static_cast<std::size_t>(node.function_slots)), true}));
  Activation& own = *kept_.back();
  TextBuilder buffer;
  TextBuilder* const before = std::exchange(out_, &buffer);
  try {
    loop_over(node, iterable, outer, own, depth);
  } catch (...) {
    out_ = before;
    throw;
  }
  out_ = before;
  return Value::of(buffer.take());
}

}  // namespace lockstep::jinja
