#include "text/template/scopes.h"

#include <map>
#include <set>

#include "text/template/builtins.h"
#include "text/template/lexer.h"

namespace lockstep::jinja {
namespace {
using How = ScopeLoad::How;

// A function of the compiled template: the root, a macro, a recursive loop. Variables live in its activation.
struct Function {
  Function* outer = nullptr;
  int slots = 0;
  std::map<std::string, int> slot_of;
  int slot(const std::string& identifier) {
    const auto [it, fresh] = slot_of.emplace(identifier, slots);
    slots += fresh;
    return it->second;
  }
};

struct Reference {
  Function* function;
  std::string identifier;
};

// What one scope refers to. jinja2 calls it Symbols and numbers scopes by level; so names of variables are level and name.
struct Symbols {
  struct Load {
    enum class Kind { parameter, resolve, alias, undefined } kind;
    Reference from;
    std::string name;
  };
  Symbols(Function* f, const Symbols* p, std::string m = {}) : function(f), parent(p), level(p ? p->level + 1 : 0), mark(std::move(m)) {}

  const Reference* find(const std::string& name) const {
    for (const Symbols* s = this; s; s = s->parent)
      if (const auto it = s->references.find(name); it != s->references.end()) return &it->second;
    return nullptr;
  }
  void define(const std::string& name, Load load) {
    Reference reference{function, mark + std::to_string(level) + ":" + name};
    loads.insert_or_assign(reference.identifier, std::move(load));
    references.insert_or_assign(name, std::move(reference));
  }
  void declare_parameter(const std::string& name) {
    stores.insert(name);
    define(name, {Load::Kind::parameter, {}, {}});
  }
  void load(const std::string& name) {
    if (!find(name)) define(name, {Load::Kind::resolve, {}, name});
  }
  void store(const std::string& name) {
    stores.insert(name);
    if (references.count(name)) return;
    if (const Reference* outer = parent ? parent->find(name) : nullptr) define(name, {Load::Kind::alias, *outer, {}});
    else define(name, {Load::Kind::undefined, {}, {}});
  }
  // After the branches of an `if`: what only some of them assign is looked up outside first.
  void merge(const std::vector<Symbols>& branches) {
    std::set<std::string> fresh;
    for (const Symbols& branch : branches)
      for (const std::string& name : branch.stores)
        if (!stores.count(name)) fresh.insert(name);
    for (const Symbols& branch : branches) {
      for (const auto& [name, reference] : branch.references) references.insert_or_assign(name, reference);
      for (const auto& [identifier, load] : branch.loads) loads.insert_or_assign(identifier, load);
      stores.insert(branch.stores.begin(), branch.stores.end());
    }
    for (const std::string& name : fresh) {
      const std::string identifier = find(name)->identifier;
      const Reference* outer = parent ? parent->find(name) : nullptr;
      if (outer) loads.insert_or_assign(identifier, Load{Load::Kind::alias, *outer, {}});
      else loads.insert_or_assign(identifier, Load{Load::Kind::resolve, {}, name});
    }
  }

  Function* function;
  const Symbols* parent;
  int level;
  std::string mark;
  std::map<std::string, Reference> references;
  std::map<std::string, Load> loads;
  std::set<std::string> stores;
};

template <class F>
void each_part(const Expr& expr, F&& f) {
  for (const ExprPtr& part : expr.parts)
    if (part) f(*part);
  for (const ExprPtr& argument : expr.arguments) f(*argument);
  for (const auto& [name, argument] : expr.keywords) f(*argument);
  if (expr.star) f(*expr.star);
  if (expr.double_star) f(*expr.double_star);
}

// --- the names that a scope's statements use (jinja2's FrameSymbolVisitor)

void gather(Symbols& symbols, const Expr& expr, bool as_parameter = false) {
  if (expr.type == Expr::Type::namespace_target) {
    symbols.load(expr.name);
  } else if (expr.type == Expr::Type::name) {
    if (as_parameter || expr.context == Expr::Context::param) symbols.declare_parameter(expr.name);
    else if (expr.context == Expr::Context::store) symbols.store(expr.name);
    else symbols.load(expr.name);
  }
  each_part(expr, [&](const Expr& part) { gather(symbols, part, as_parameter); });
}

void gather(Symbols& symbols, const Body& body);

void gather(Symbols& symbols, const Statement& node) {
  using Type = Statement::Type;
  switch (node.type) {
    case Type::output:
      for (const ExprPtr& e : node.expressions) gather(symbols, *e);
      break;
    case Type::condition: {
      gather(symbols, *node.expression);
      std::vector<Symbols> branches(3, symbols);
      gather(branches[0], node.body);
      gather(branches[1], node.elifs);
      gather(branches[2], node.otherwise);
      symbols.merge(branches);
      break;
    }
    case Type::macro:
      symbols.store(node.name);
      break;
    case Type::set:
      gather(symbols, *node.expression);
      gather(symbols, *node.target);
      break;
    case Type::for_loop:
    case Type::call_block:
    case Type::filter_block:
      gather(symbols, *node.expression);
      break;
    case Type::with:
      for (const ExprPtr& e : node.expressions) gather(symbols, *e);
      break;
    case Type::set_block:
      gather(symbols, *node.target);
      break;
    case Type::generation:
    case Type::break_loop:
    case Type::continue_loop:
      break;
  }
}

void gather(Symbols& symbols, const Body& body) {
  for (const StatementPtr& statement : body) gather(symbols, *statement);
}

// --- names read somewhere in a body before anything there assigns them (jinja2's find_undeclared)

struct Undeclared {
  std::set<std::string> names, found;
  void visit(const Expr& expr) {
    if (expr.type == Expr::Type::name) {
      if (expr.context == Expr::Context::load && names.count(expr.name)) found.insert(expr.name);
      else if (expr.context != Expr::Context::load) names.erase(expr.name);
    }
    each_part(expr, [&](const Expr& part) { visit(part); });
  }
  void visit(const ExprPtr& expr) {
    if (expr) visit(*expr);
  }
  void visit(const std::vector<ExprPtr>& list) {
    for (const ExprPtr& expr : list) visit(expr);
  }
  void visit(const Body& body) {
    for (const StatementPtr& node : body) visit(*node);
  }
  void visit(const Statement& node) {
    const bool expression_first = node.type == Statement::Type::condition || node.type == Statement::Type::call_block;
    if (expression_first) visit(node.expression);
    visit(node.target);
    visit(node.targets);
    if (!expression_first && node.type != Statement::Type::filter_block) visit(node.expression);
    visit(node.expressions);
    visit(node.parameters);
    visit(node.defaults);
    visit(node.body);
    if (node.type == Statement::Type::filter_block) visit(node.expression);
    visit(node.elifs);
    visit(node.otherwise);
    visit(node.filter_test);
  }
};

std::set<std::string> undeclared(const Body& body, std::set<std::string> names) {
  Undeclared visitor{std::move(names), {}};
  visitor.visit(body);
  return visitor.found;
}

bool assigns_loop(const Expr* expr) {
  if (!expr) return false;
  if (expr->type == Expr::Type::name && expr->context == Expr::Context::store && expr->name == "loop") return true;
  bool found = false;
  each_part(*expr, [&](const Expr& part) { found = found || assigns_loop(&part); });
  return found;
}
bool assigns_loop(const Statement& node) {
  if (assigns_loop(node.target.get())) return true;
  for (const Body* body : {&node.body, &node.elifs, &node.otherwise})
    for (const StatementPtr& inner : *body)
      if (assigns_loop(*inner)) return true;
  return false;
}

ExprPtr copy_target(const Expr& target) {
  auto copy = std::make_unique<Expr>();
  copy->type = target.type;
  copy->line = target.line;
  copy->name = target.name;
  copy->context = target.context;
  for (const ExprPtr& part : target.parts) copy->parts.push_back(copy_target(*part));
  return copy;
}

// --- places

class Resolver {
 public:
  explicit Resolver(Template& parsed) : parsed_(parsed) {}
  void run() {
    Function root;
    Symbols symbols(&root, nullptr);
    gather(symbols, parsed_.body);
    visit(parsed_.body, symbols, false);
    parsed_.scope = scope_of(symbols);
    parsed_.slots = root.slots;
  }

 private:
  static Place place(const Reference& reference, const Function* from) {
    Place place;
    for (; from != reference.function; from = from->outer) ++place.hops;
    place.slot = reference.function->slot(reference.identifier);
    return place;
  }
  static Place place(const std::string& name, const Symbols& symbols, int line) {
    const Reference* reference = symbols.find(name);
    if (!reference) fail_syntax(line, "the variable '{}' cannot be used here", utf8_excerpt(name));
    return place(*reference, symbols.function);
  }
  static Scope scope_of(const Symbols& symbols) {
    Scope scope;
    for (const auto& [identifier, load] : symbols.loads) {
      const int slot = symbols.function->slot(identifier);
      scope.slots.push_back(slot);
      switch (load.kind) {
        case Symbols::Load::Kind::parameter:
          break;
        case Symbols::Load::Kind::resolve:
          scope.loads.push_back({How::resolve, slot, {}, load.name});
          break;
        case Symbols::Load::Kind::alias:
          scope.loads.push_back({How::alias, slot, place(load.from, symbols.function), {}});
          break;
        case Symbols::Load::Kind::undefined:
          scope.loads.push_back({How::missing, slot, {}, {}});
          break;
      }
    }
    return scope;
  }

  void visit(Expr& expr, const Symbols& symbols, bool soft) {
    if (expr.type == Expr::Type::name || expr.type == Expr::Type::namespace_target) expr.place = place(expr.name, symbols, expr.line);
    // jinja2 leaves an unknown filter or test for the run in a branch that may never be taken.
    if (expr.type == Expr::Type::filter) check_filter_name(expr.name, expr.line, soft);
    if (expr.type == Expr::Type::test) check_test_name(expr.name, expr.line, soft);
    const bool branch = soft || expr.type == Expr::Type::condition;
    for (ExprPtr& part : expr.parts)
      if (part) visit(*part, symbols, branch);
    for (ExprPtr& argument : expr.arguments) visit(*argument, symbols, branch);
    for (auto& [name, argument] : expr.keywords) visit(*argument, symbols, branch);
    if (expr.star) visit(*expr.star, symbols, branch);
    if (expr.double_star) visit(*expr.double_star, symbols, branch);
  }

  void visit(Body& body, const Symbols& symbols, bool soft) {
    for (StatementPtr& node : body) visit(*node, symbols, soft);
  }

  void visit(Statement& node, const Symbols& symbols, bool soft) {
    using Type = Statement::Type;
    switch (node.type) {
      case Type::output:
        for (ExprPtr& e : node.expressions) visit(*e, symbols, soft);
        return;
      case Type::condition:
        visit(*node.expression, symbols, true);
        visit(node.body, symbols, true);
        for (StatementPtr& elif : node.elifs) visit(*elif, symbols, true);
        visit(node.otherwise, symbols, true);
        return;
      case Type::set:
        visit(*node.expression, symbols, soft);
        visit(*node.target, symbols, soft);
        return;
      case Type::set_block: {
        Symbols inner(symbols.function, &symbols);
        gather(inner, node.body);
        visit(node.body, inner, false);
        visit(*node.target, symbols, soft);
        if (node.expression) visit(*node.expression, inner, false);
        node.scope = scope_of(inner);
        return;
      }
      case Type::filter_block: {
        Symbols inner(symbols.function, &symbols);
        gather(inner, node.body);
        gather(inner, *node.expression);
        visit(node.body, inner, false);
        visit(*node.expression, inner, false);
        node.scope = scope_of(inner);
        return;
      }
      case Type::with: {
        Symbols inner(symbols.function, &symbols);
        for (ExprPtr& target : node.targets) gather(inner, *target);
        gather(inner, node.body);
        for (ExprPtr& e : node.expressions) visit(*e, symbols, soft);
        for (ExprPtr& target : node.targets) visit(*target, inner, false);
        visit(node.body, inner, false);
        node.scope = scope_of(inner);
        return;
      }
      case Type::for_loop:
        return visit_loop(node, symbols, soft);
      case Type::macro:
        visit_macro(node, symbols);
        node.place = place(node.name, symbols, node.line);
        return;
      case Type::call_block:
        visit_macro(node, symbols);
        visit(*node.expression, symbols, soft);
        return;
      case Type::generation:
        return visit_macro(node, symbols);
      case Type::break_loop:
      case Type::continue_loop:
        return;
    }
  }

  void visit_loop(Statement& node, const Symbols& symbols, bool soft) {
    Function own{symbols.function};
    Function* function = node.recursive ? &own : symbols.function;
    Symbols body(function, &symbols);
    node.extended = node.recursive || undeclared(node.body, {"loop"}).count("loop");
    if (node.extended) body.declare_parameter("loop");
    gather(body, *node.target, true);
    gather(body, node.body);
    if (assigns_loop(node)) fail_syntax(node.line, "Can't assign to special loop variable in for-loop target");
    if (node.filter_test) {
      node.filter_target = copy_target(*node.target);
      Symbols test(symbols.function, &symbols, "test " + std::to_string(tests_++) + " ");
      gather(test, *node.filter_target, true);
      gather(test, *node.filter_test);
      visit(*node.filter_target, test, false);
      visit(*node.filter_test, test, false);
      node.test_scope = scope_of(test);
    }
    visit(*node.expression, symbols, soft);
    visit(*node.target, body, false);
    if (node.extended) node.loop_place = place("loop", body, node.line);
    visit(node.body, body, false);
    node.scope = scope_of(body);
    if (!node.otherwise.empty()) {
      Symbols otherwise(function, &symbols);
      gather(otherwise, node.otherwise);
      visit(node.otherwise, otherwise, false);
      node.else_scope = scope_of(otherwise);
    }
    node.function_slots = own.slots;
  }

  void visit_macro(Statement& node, const Symbols& symbols) {
    Function own{symbols.function};
    Symbols inner(&own, &symbols);
    const auto analyze = [&] {
      for (ExprPtr& parameter : node.parameters) gather(inner, *parameter);
      for (ExprPtr& value : node.defaults) gather(inner, *value);
      gather(inner, node.body);
    };
    analyze();
    std::set<std::string> given;
    int index = 0, caller_index = -1;
    for (const ExprPtr& parameter : node.parameters) {
      given.insert(parameter->name);
      if (parameter->name == "caller") caller_index = index;
      ++index;
    }
    const auto used = undeclared(node.body, {"caller", "kwargs", "varargs"});
    const int first_default = static_cast<int>(node.parameters.size() - node.defaults.size());
    if (used.count("caller") && caller_index >= 0 && caller_index < first_default)
      fail_syntax(node.line, "When defining macros or call blocks the special \"caller\" argument must be omitted or be given a default.");
    const auto special = [&](const char* name, int& slot) {
      if (!used.count(name) || given.count(name)) return;
      inner.declare_parameter(name);
      slot = own.slot(inner.find(name)->identifier);
    };
    special("caller", node.caller_slot);
    special("kwargs", node.kwargs_slot);
    special("varargs", node.varargs_slot);
    node.accesses_caller = used.count("caller") > 0;
    analyze();
    for (ExprPtr& parameter : node.parameters) node.parameter_slots.push_back(own.slot(inner.find(parameter->name)->identifier));
    for (ExprPtr& value : node.defaults) visit(*value, inner, false);
    visit(node.body, inner, false);
    node.scope = scope_of(inner);
    node.function_slots = own.slots;
  }

  Template& parsed_;
  int tests_ = 0;
};
}  // namespace

void resolve_scopes(Template& parsed) { Resolver(parsed).run(); }

}  // namespace lockstep::jinja
