// The syntax tree of a parsed template: expressions and statements, with variables' slots once `resolve_scopes` has run.
// Knows no values but constants. Immutable after that; any thread may evaluate it.
#pragma once
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/template/value.h"

namespace lockstep::jinja {

struct Expr;
struct Statement;
using ExprPtr = std::unique_ptr<Expr>;
using StatementPtr = std::unique_ptr<Statement>;
using Body = std::vector<StatementPtr>;

// A variable: `hops` functions outward, then its slot there.
struct Place {
  int hops = 0, slot = -1;
};

// What happens to a variable when its scope is entered.
struct ScopeLoad {
  enum class How { resolve, alias, missing } how;
  int slot;
  Place from;        // of an alias
  std::string name;  // of what the caller passed or a global, to resolve
};
struct Scope {
  std::vector<ScopeLoad> loads;
  std::vector<int> slots;  // made missing on leaving
};

struct Expr {
  enum class Type {
    constant,
    name,
    namespace_target,
    tuple,
    list,
    dict,
    call,
    filter,
    test,
    attribute,
    item,
    slice,
    compare,
    logical_and,
    logical_or,
    logical_not,
    negative,
    positive,
    binary,
    concat,
    condition,
  };
  enum class Context { load, store, param };
  Type type;
  int line;
  int height = 1;
  std::string name;  // a variable, an attribute, a filter, a test, a binary operator
  Context context = Context::load;
  Value constant;
  // Operands in order. dict: key, value, key, value. item: object, index. slice: start, stop, step (null where left out).
  // condition: test, then, else (null). call, filter, test: the callee or subject (null in a filter block).
  std::vector<ExprPtr> parts;
  std::vector<std::string> operators;  // of compare, one before each of parts[1..]
  std::vector<ExprPtr> arguments;
  std::vector<std::pair<std::string, ExprPtr>> keywords;
  ExprPtr star, double_star;
  Place place;  // of a name or a namespace
};

struct Statement {
  enum class Type { output, for_loop, condition, macro, call_block, filter_block, with, set, set_block, generation, break_loop, continue_loop };
  Type type;
  int line;
  // output: what is printed. with: values.
  std::vector<ExprPtr> expressions;
  ExprPtr target;                      // set, set_block, for_loop
  ExprPtr expression;                  // set: value; for_loop: what is iterated; condition: test; call_block: the call; filter_block, set_block: filter
  ExprPtr filter_test, filter_target;  // for_loop: its `if`, and the target as that sees it
  bool recursive = false;
  Body body, otherwise;
  std::vector<StatementPtr> elifs;  // of a condition, each a condition
  std::vector<ExprPtr> targets;     // with
  // macro, call_block
  std::string name;
  std::vector<ExprPtr> parameters;
  std::vector<ExprPtr> defaults;

  // Filled by resolve_scopes.
  Place place;  // of the macro
  Scope scope, test_scope, else_scope;
  bool extended = false;  // the loop has a variable `loop`
  Place loop_place;
  int function_slots = 0;  // a macro's or recursive loop's own variables
  std::vector<int> parameter_slots;
  int caller_slot = -1, kwargs_slot = -1, varargs_slot = -1;
  bool accesses_caller = false;
};

struct Template {
  Body body;
  Scope scope;
  int slots = 0;
};

}  // namespace lockstep::jinja
