// Runs a parsed template: evaluates expressions, executes statements, calls macros, gathers output and the ranges of
// `generation` blocks.
//   Interpreter run(parsed, variables, unix_time); Rendering r = run.render(limits.output_bytes);
// One object is one rendering. Knows no chat. One thread.
#pragma once
#include <memory>
#include <vector>

#include "text/template/builtins.h"
#include "text/template/syntax_tree.h"

namespace lockstep::jinja {

struct Rendering {
  Text text;
  std::vector<ByteRange> generations;  // of the text, as transformers counts them
};

class Interpreter {
 public:
  // `parsed` outlives the object.
  Interpreter(const Template& parsed, const Dict& variables, std::int64_t unix_time);
  ~Interpreter();
  // Once. Errors carry the line in their chain.
  Rendering render(std::size_t most_output_bytes);

  // --- for what is built in
  Value call(const Value& callee, Arguments& arguments);
  Value apply_filter(const std::string& name, const Value& subject, Arguments& arguments);
  bool apply_test(const std::string& name, const Value& subject, Arguments& arguments);
  std::int64_t unix_time() const { return unix_time_; }
  // Registers a value with state, which is emptied when the rendering ends: a value that refers to itself would never be freed otherwise.
  void own(const Value& stateful) { stateful_.push_back(stateful); }

 private:
  // The variables of a call: of the template, of a macro, of a loop that calls itself.
  struct Activation {
    Value& variable(const Place& place);
    void leave(const Scope& scope);
    // Something that outlives this call may look into it, and into those outside.
    void capture();

    Activation* outer;
    std::vector<Value> slots;
    bool captured = false;
  };
  struct MacroObject : NamedMacro {
    const Statement* node = nullptr;
    Activation* defined_in = nullptr;
  };
  enum class Flow { normal, break_loop, continue_loop };

  void enter(const Scope& scope, Activation& at);

  Flow execute(const Body& body, Activation& at);
  Flow execute(const Statement& node, Activation& at);
  Flow execute_loop(const Statement& node, Activation& at);
  Flow loop_over(const Statement& node, const Value& iterable, Activation& outer, Activation& at, std::int64_t depth);
  Value recurse_loop(const Statement& node, const Value& iterable, Activation& outer, std::int64_t depth);
  Flow captured_output(const Body& body, Activation& at, Value& text);
  void generation(const Statement& node, Activation& at);
  void assign(const Expr& target, Value value, Activation& at);
  void print(const Value& value);

  Value make_macro(const Statement& node, Activation& at);
  Value call_macro(const MacroObject& macro, Arguments& arguments);

  Value evaluate(const Expr& expr, Activation& at);
  Value evaluate_call(const Expr& expr, Activation& at, const Value* caller);
  Value evaluate_filter(const Expr& expr, Activation& at, const Value* subject);
  Value evaluate_compare(const Expr& expr, Activation& at);
  Value evaluate_unary(const Expr& expr, Activation& at);
  Arguments evaluate_arguments(const Expr& expr, Activation& at);
  Value resolve(const std::string& name);

  const Template& parsed_;
  const Dict& variables_;
  std::int64_t unix_time_;
  int line_ = 0;
  TextBuilder* out_ = nullptr;
  TextBuilder root_out_;
  std::vector<ByteRange> generations_;
  std::vector<std::unique_ptr<Activation>> kept_;
  std::vector<Value> stateful_;
};

}  // namespace lockstep::jinja
