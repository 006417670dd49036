// The operations that a traced loss may call: torch functions, tensor methods, Python's operators and math, by the names torch.fx gives them. A row
// is a name, parameter names and a function that checks its arguments. Semantics are torch's, in double; a maximum that several elements reach shares
// its gradient as in torch.
//   const GraphOperation* op = find_graph_operation("torch.exp", false); GraphValue y = op->run(call);
#pragma once
#include <string_view>

#include "losses/graph_tape.h"

namespace lockstep {

struct GraphOperation;

// The arguments of one call, bound to the operation's parameters.
class GraphCall {
 public:
  // Error invalid_argument for arguments that the operation has not, or has already.
  GraphCall(GraphTape& tape, const GraphOperation& operation, std::vector<GraphValue> arguments, std::vector<std::pair<std::string, GraphValue>> named);

  GraphTape& tape() const { return tape_; }
  const GraphOperation& operation() const { return operation_; }
  bool has(std::size_t i) const { return i < values_.size() && !values_[i].is(GraphValue::Kind::none); }
  const GraphValue& value(std::size_t i) const { return values_[i]; }
  // Errors invalid_argument name the parameter, what it is and what is allowed.
  GraphTensorPtr tensor(std::size_t i) const;         // a number is a tensor of no dimension
  GraphTensorPtr proper_tensor(std::size_t i) const;  // a tensor
  std::int64_t integer(std::size_t i) const;
  std::int64_t integer_or(std::size_t i, std::int64_t standard) const { return has(i) ? integer(i) : standard; }
  double number(std::size_t i) const;  // a tensor of one element that is not tracked, too
  double number_or(std::size_t i, double standard) const { return has(i) ? number(i) : standard; }
  bool boolean_or(std::size_t i, bool standard) const;
  std::string text_or(std::size_t i, const std::string& standard) const;
  std::vector<std::int64_t> integers(std::size_t i) const;  // a tuple or list of them, or one
  [[noreturn]] void refuse(std::size_t i, const std::string& allowed) const;

 private:
  GraphTape& tape_;
  const GraphOperation& operation_;
  std::vector<GraphValue> values_;  // by parameter
};

struct GraphOperation {
  std::string name;
  std::vector<std::string> parameters;  // "*sizes": all further arguments as one tuple
  std::function<GraphValue(const GraphCall&)> run;
};

// `target` as torch.fx names it; null: there is none.
const GraphOperation* find_graph_operation(const std::string& target, bool method);
// Of every row, sorted: "exp", "operator.mul" is "mul".
std::vector<std::string> graph_operation_names();

// Rows by subject (graph_*_operations.cpp).
using GraphOperationRows = std::vector<GraphOperation>;
void add_element_operations(GraphOperationRows& rows);
void add_reducing_operations(GraphOperationRows& rows);
void add_shape_operations(GraphOperationRows& rows);
void add_python_operations(GraphOperationRows& rows);

// Shared by the rows.
GraphTensorPtr graph_tensor_of(GraphTape& tape, const GraphValue& value);  // null: neither tensor nor number
std::int64_t graph_dimension(std::int64_t dimension, std::int64_t rank);   // from the end where negative; error where there is none
std::int64_t graph_whole(double x);                                        // error for what is no exact integer
GraphTensorPtr graph_detached(GraphTape& tape, const GraphTensorPtr& x);
GraphTensorPtr graph_cast(GraphTape& tape, const GraphTensorPtr& x, GraphElement element);
GraphElement graph_dtype(const std::string& name);  // error for one that losses do not have
GraphTensorPtr graph_reshaped(GraphTape& tape, const GraphTensorPtr& x, GraphShape shape);
GraphTensorPtr graph_sum(GraphTape& tape, const GraphTensorPtr& x, const std::vector<std::int64_t>& dimensions, bool keep);  // empty: all
GraphValue graph_arithmetic(GraphTape& tape, const std::string& operation, const GraphValue& a, const GraphValue& b);
GraphValue graph_item(const GraphCall& call, const GraphValue& of, const GraphValue& key);

}  // namespace lockstep
