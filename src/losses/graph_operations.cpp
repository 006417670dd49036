#include "losses/graph_operations.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "base/error.h"

namespace lockstep {
namespace {

// Other names of the same operation.
const std::unordered_map<std::string, std::string>& aliases() {
  static const std::unordered_map<std::string, std::string> table = {
      {"subtract", "sub"},           {"multiply", "mul"}, {"divide", "div"},         {"true_divide", "div"},    {"negative", "neg"},
      {"absolute", "abs"},           {"clip", "clamp"},   {"greater", "gt"},         {"greater_equal", "ge"},   {"less", "lt"},
      {"less_equal", "le"},          {"not_equal", "ne"}, {"concat", "cat"},         {"concatenate", "cat"},    {"expit", "sigmoid"},
      {"log_sigmoid", "logsigmoid"}, {"view", "reshape"}, {"swapaxes", "transpose"}, {"swapdims", "transpose"}, {"ndimension", "dim"},
      {"view_as", "reshape_as"},     {"double", "float"}, {"int", "long"},           {"fix", "trunc"}};
  return table;
}
const std::unordered_map<std::string, std::string>& operators() {
  static const std::unordered_map<std::string, std::string> table = {{"add", "add"},
                                                                     {"sub", "sub"},
                                                                     {"mul", "mul"},
                                                                     {"truediv", "div"},
                                                                     {"floordiv", "floor_divide"},
                                                                     {"mod", "remainder"},
                                                                     {"pow", "pow"},
                                                                     {"neg", "neg"},
                                                                     {"pos", "positive"},
                                                                     {"abs", "abs"},
                                                                     {"and_", "bitwise_and"},
                                                                     {"or_", "bitwise_or"},
                                                                     {"xor", "bitwise_xor"},
                                                                     {"invert", "bitwise_not"},
                                                                     {"inv", "bitwise_not"},
                                                                     {"lt", "lt"},
                                                                     {"le", "le"},
                                                                     {"gt", "gt"},
                                                                     {"ge", "ge"},
                                                                     {"eq", "eq"},
                                                                     {"ne", "ne"},
                                                                     {"getitem", "getitem"},
                                                                     {"matmul", "matmul"}};
  return table;
}

const std::unordered_map<std::string, GraphOperation>& operation_rows() {
  static const std::unordered_map<std::string, GraphOperation> table = [] {
    GraphOperationRows rows;
    add_element_operations(rows);
    add_reducing_operations(rows);
    add_shape_operations(rows);
    add_python_operations(rows);
    std::unordered_map<std::string, GraphOperation> by_name;
    for (GraphOperation& row : rows) by_name.emplace(row.name, std::move(row));
    return by_name;
  }();
  return table;
}

const GraphOperation* row_named(const std::string& name) {
  const auto alias = aliases().find(name);
  const auto found = operation_rows().find(alias == aliases().end() ? name : alias->second);
  return found == operation_rows().end() ? nullptr : &found->second;
}

// Names that are no torch function's and no method's.
bool of_python(const std::string& name) { return name == "getattr" || name == "getitem" || name.starts_with("math.") || name.starts_with("Tensor."); }

}  // namespace

const GraphOperation* find_graph_operation(const std::string& target, bool method) {
  if (method) {
    if (const GraphOperation* own = row_named("Tensor." + target)) return own;
    return of_python(target) ? nullptr : row_named(target);
  }
  if (target == "getattr" || target.starts_with("math.")) return row_named(target);
  if (target.starts_with("operator.")) {
    const auto found = operators().find(target.substr(9));
    return found == operators().end() ? nullptr : row_named(found->second);
  }
  for (const std::string_view prefix : {"torch.nn.functional.", "torch._C._nn.", "torch._C._special.special_", "torch.special.", "torch.Tensor.", "torch."}) {
    if (!target.starts_with(prefix)) continue;
    const std::string name = target.substr(prefix.size());
    return of_python(name) ? nullptr : row_named(name);
  }
  return nullptr;
}

std::vector<std::string> graph_operation_names() {
  std::vector<std::string> names;
  for (const auto& [name, row] : operation_rows())
    if (!name.starts_with("Tensor.")) names.push_back(name);
  std::sort(names.begin(), names.end());
  return names;
}

GraphCall::GraphCall(GraphTape& tape, const GraphOperation& operation, std::vector<GraphValue> arguments, std::vector<std::pair<std::string, GraphValue>> named)
    : tape_(tape), operation_(operation), values_(operation.parameters.size()) {
  const std::vector<std::string>& parameters = operation.parameters;
  std::vector<bool> given(parameters.size(), false);
  for (std::size_t i = 0, at = 0; at < arguments.size(); ++i) {
    if (i >= parameters.size()) fail(ErrorCode::invalid_argument, "it has {} arguments, allowed are {}", arguments.size(), parameters.size());
    given[i] = true;
    if (!parameters[i].starts_with('*')) {
      values_[i] = std::move(arguments[at++]);
    } else if (at + 1 == arguments.size() && arguments[at].is_sequence()) {
      values_[i] = std::move(arguments[at++]);
    } else {
      values_[i] = GraphValue::of(
          std::vector<GraphValue>(std::make_move_iterator(arguments.begin() + static_cast<std::ptrdiff_t>(at)), std::make_move_iterator(arguments.end())));
      at = arguments.size();
    }
  }
  for (auto& [name, value] : named) {
    if (name == "memory_format" || name == "layout" || name == "device" || name == "pin_memory" || name == "non_blocking" || name == "copy" ||
        name == "_stacklevel" || name == "inplace")
      if (std::find(parameters.begin(), parameters.end(), name) == parameters.end()) continue;  // says nothing about values
    const std::string wanted = name == "axis" ? "dim" : name == "x" ? "input" : name;
    const auto found =
        std::find_if(parameters.begin(), parameters.end(), [&](const std::string& p) { return p == wanted || (p.starts_with('*') && p.substr(1) == wanted); });
    if (found == parameters.end())
      fail(ErrorCode::invalid_argument, "it has an argument '{}', allowed are {}", name.substr(0, 64), fmt::join(parameters, ", "));
    const auto i = static_cast<std::size_t>(found - parameters.begin());
    if (given[i]) fail(ErrorCode::invalid_argument, "it has the argument '{}' twice", wanted);
    given[i] = true;
    values_[i] = std::move(value);
  }
}

void GraphCall::refuse(std::size_t i, const std::string& allowed) const {
  const GraphValue& v = values_[i];
  const std::string what = v.is(GraphValue::Kind::tensor) ? fmt::format("a tensor of shape {}", graph_shape_text(v.tensor->shape))
                           : v.is_number()                ? fmt::format("{}", v.number())
                                                          : graph_kind_name(v.kind);
  fail(ErrorCode::invalid_argument, "{} is {}, allowed is {}", operation_.parameters[i], what, allowed);
}

GraphTensorPtr GraphCall::tensor(std::size_t i) const {
  GraphTensorPtr tensor = graph_tensor_of(tape_, values_[i]);
  if (!tensor) refuse(i, "a tensor or a number");
  return tensor;
}
GraphTensorPtr GraphCall::proper_tensor(std::size_t i) const {
  if (!values_[i].is(GraphValue::Kind::tensor)) refuse(i, "a tensor");
  return values_[i].tensor;
}
std::int64_t GraphCall::integer(std::size_t i) const {
  if (!values_[i].is_whole()) refuse(i, "an integer");
  return values_[i].integer;
}
double GraphCall::number(std::size_t i) const {
  const GraphValue& v = values_[i];
  if (v.is(GraphValue::Kind::tensor) && v.tensor->size() == 1 && !v.tensor->tracked) return v.tensor->values[0];
  if (!v.is_number()) refuse(i, "a number");
  return v.number();
}
bool GraphCall::boolean_or(std::size_t i, bool standard) const {
  if (!has(i)) return standard;
  if (!values_[i].is_whole()) refuse(i, "True or False");
  return values_[i].integer != 0;
}
std::string GraphCall::text_or(std::size_t i, const std::string& standard) const {
  if (!has(i)) return standard;
  if (!values_[i].is(GraphValue::Kind::text)) refuse(i, "a string");
  return values_[i].text;
}
std::vector<std::int64_t> GraphCall::integers(std::size_t i) const {
  if (values_[i].is_whole()) return {values_[i].integer};
  if (!values_[i].is_sequence()) refuse(i, "an integer or a tuple of integers");
  std::vector<std::int64_t> out;
  for (const GraphValue& one : values_[i].items) {
    if (!one.is_whole()) refuse(i, "a tuple of integers alone");
    out.push_back(one.integer);
  }
  return out;
}

GraphTensorPtr graph_tensor_of(GraphTape& tape, const GraphValue& value) {
  if (value.is(GraphValue::Kind::tensor)) return value.tensor;
  if (!value.is_number()) return nullptr;
  const GraphElement element = value.is(GraphValue::Kind::real)      ? GraphElement::real
                               : value.is(GraphValue::Kind::integer) ? GraphElement::integer
                                                                     : GraphElement::boolean;
  if (element == GraphElement::integer) graph_whole(value.number());
  return tape.scalar(value.number(), element);
}

std::int64_t graph_whole(double x) {
  if (!(std::fabs(x) < 9.0e15)) fail(ErrorCode::invalid_argument, "the integer {}; allowed are integers below 9e15", x);
  return static_cast<std::int64_t>(x);
}

std::int64_t graph_dimension(std::int64_t dimension, std::int64_t rank) {
  const std::int64_t most = std::max<std::int64_t>(rank, 1);
  if (dimension < -most || dimension >= most)
    fail(ErrorCode::invalid_argument, "dimension {} of a tensor of {}; allowed are {} to {}", dimension, rank, -most, most - 1);
  return dimension < 0 ? dimension + most : dimension;
}

GraphTensorPtr graph_detached(GraphTape& tape, const GraphTensorPtr& x) { return x->tracked ? tape.copied(x, x->element) : x; }

GraphTensorPtr graph_cast(GraphTape& tape, const GraphTensorPtr& x, GraphElement element) {
  if (x->element == element) return x;
  if (element == GraphElement::real) return tape.copied(x, element);
  return tape.elementwise(
      {x}, element,
      [element](const double* v) {
        if (element == GraphElement::boolean) return v[0] != 0 ? 1.0 : 0.0;
        return static_cast<double>(graph_whole(v[0]));
      },
      nullptr);
}

GraphElement graph_dtype(const std::string& name) {
  if (name == "float32" || name == "float" || name == "float64" || name == "double") return GraphElement::real;
  if (name == "int64" || name == "long" || name == "int32" || name == "int") return GraphElement::integer;
  if (name == "bool") return GraphElement::boolean;
  fail(ErrorCode::invalid_argument, "the dtype is {}, allowed are float32 and float64 (both computed in double), int64, int32, bool", name.substr(0, 64));
}

}  // namespace lockstep
