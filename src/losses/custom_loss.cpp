#include "losses/custom_loss.h"

#include <cmath>

#include "base/error.h"
#include "base/give_way.h"
#include "losses/graph_operations.h"

namespace lockstep {
namespace {
// Computed for one datum, and held. A datum is computed in one turn of training, however long that takes: rollouts and other training wait for its end, and
// live steps alone run in its middle.
constexpr std::int64_t kMostElements = std::int64_t{1} << 24;
constexpr std::int64_t kNodeElements = 64;  // what a node takes beside its values, in elements

std::vector<double> as_doubles(const std::vector<float>& numbers) {
  std::vector<double> values;
  values.reserve(numbers.size());
  for (const float x : numbers) {
    give_way_at(values.size());
    values.push_back(static_cast<double>(x));
  }
  return values;
}
std::vector<double> as_doubles(const NamedTensor& tensor) {
  if (tensor.is_float) return as_doubles(tensor.floats);
  std::vector<double> values;
  values.reserve(tensor.integers.size());
  for (const std::int64_t i : tensor.integers) {
    constexpr std::int64_t kMostExact = std::int64_t{1} << 52;
    if (i > kMostExact || i < -kMostExact) fail(ErrorCode::invalid_argument, "an input has the integer {}, allowed are those within 2^52", i);
    give_way_at(values.size());
    values.push_back(static_cast<double>(i));
  }
  return values;
}

std::int64_t bytes_of(const GraphValue& value) {
  auto bytes = static_cast<std::int64_t>(sizeof value + value.text.size());
  for (const std::string& key : value.keys) bytes += static_cast<std::int64_t>(sizeof key + key.size());
  for (const GraphValue& item : value.items) bytes += bytes_of(item);
  return bytes;
}

std::int64_t bytes_of(const LossGraph& graph) {
  std::int64_t bytes = 0;
  for (const GraphNode& node : graph.nodes) {
    bytes += static_cast<std::int64_t>(sizeof node + node.name.size() + node.target.size());
    for (const GraphValue& argument : node.arguments) bytes += bytes_of(argument);
    for (const auto& [key, argument] : node.named) bytes += static_cast<std::int64_t>(sizeof key + key.size()) + bytes_of(argument);
  }
  return bytes;
}

// References become what their nodes gave.
GraphValue resolved(GraphTape& tape, const GraphValue& value, const std::vector<GraphValue>& results) {
  if (value.is(GraphValue::Kind::reference)) {
    const GraphValue& result = results[static_cast<std::size_t>(value.integer)];
    tape.charge_copy(result);
    return result;
  }
  if (value.items.empty()) return value;
  GraphValue copy = value;
  for (GraphValue& item : copy.items) item = resolved(tape, item, results);
  return copy;
}

double one_number(const GraphValue& value, const std::string& what) {
  if (value.is(GraphValue::Kind::tensor) && value.tensor->size() == 1) return value.tensor->values[0];
  if (value.is_number()) return value.number();
  fail(ErrorCode::invalid_argument, "{} is {}, allowed is a tensor of one element", what,
       value.is(GraphValue::Kind::tensor) ? fmt::format("a tensor of shape {}", graph_shape_text(value.tensor->shape)) : graph_kind_name(value.kind));
}
}  // namespace

CustomLoss::CustomLoss(std::string name, const nlohmann::ordered_json& inputs, const nlohmann::ordered_json& graph)
    : name_(std::move(name)), graph_(read_loss_graph(inputs, graph)), bytes_(static_cast<std::int64_t>(name_.size()) + bytes_of(graph_)) {}

std::vector<std::string> CustomLoss::metric_names() const {
  std::vector<std::string> names;
  for (const auto& [name, node] : graph_.metrics) names.push_back(name);
  return names;
}

CustomLoss::Result CustomLoss::run(const std::vector<float>& logprobs, const std::vector<std::int64_t>& shape, const std::map<std::string, NamedTensor>& inputs,
                                   const GraphRoom& room) const {
  GraphTape tape(kMostElements, room);
  tape.hold(kNodeElements * std::ssize(graph_.nodes));
  std::vector<GraphValue> results;
  results.reserve(graph_.nodes.size());
  for (const LossGraph::Input& input : graph_.inputs) {
    const bool first = results.empty();
    const auto found = inputs.find(input.name);
    if (!first && found == inputs.end()) fail(ErrorCode::invalid_argument, "loss_fn_inputs has no {}, which the loss '{}' takes", input.name, name_);
    GraphShape own = first ? shape : found->second.shape;
    if (!first && input.rank == 0 && found->second.size() == 1) own.clear();  // the wire has no tensors without a dimension
    if (static_cast<std::int64_t>(own.size()) != input.rank)
      fail(ErrorCode::invalid_argument, "{} has {} dimensions, the loss '{}' takes {}", first ? "target_tokens" : "loss_fn_inputs." + input.name, own.size(),
           name_, input.rank);
    tape.hold(static_cast<std::int64_t>(first ? logprobs.size() : found->second.size()));  // until it is a tensor
    if (first) results.push_back(GraphValue::of(tape.variable(std::move(own), as_doubles(logprobs))));
    else
      results.push_back(
          GraphValue::of(tape.constant(std::move(own), found->second.is_float ? GraphElement::real : GraphElement::integer, as_doubles(found->second))));
  }
  const GraphTensorPtr variable = results[0].tensor;
  for (std::size_t n = results.size(); n < graph_.nodes.size(); ++n) {
    const GraphNode& node = graph_.nodes[n];
    give_way();
    try {
      std::vector<GraphValue> arguments;
      for (const GraphValue& argument : node.arguments) arguments.push_back(resolved(tape, argument, results));
      std::vector<std::pair<std::string, GraphValue>> named;
      for (const auto& [key, argument] : node.named) named.emplace_back(key, resolved(tape, argument, results));
      results.push_back(node.operation->run(GraphCall(tape, *node.operation, std::move(arguments), std::move(named))));
    } catch (const Error& e) {
      fail(e.code(), "node '{}' ({}) of the loss '{}': {}", node.name, node.target, name_, e.message());
    }
  }
  Result out;
  const GraphValue& loss = results[graph_.loss];
  if (!loss.is(GraphValue::Kind::tensor) || !loss.tensor->shape.empty())
    fail(ErrorCode::invalid_argument, "the loss '{}' returns {}, allowed is a tensor without a dimension (a scalar)", name_,
         loss.is(GraphValue::Kind::tensor) ? fmt::format("a tensor of shape {}", graph_shape_text(loss.tensor->shape)) : graph_kind_name(loss.kind));
  if (!loss.tensor->tracked) fail(ErrorCode::invalid_argument, "the loss '{}' does not depend on logprobs, so it has no gradient", name_);
  out.loss = loss.tensor->values[0];
  if (!std::isfinite(out.loss)) fail(ErrorCode::invalid_argument, "the loss '{}' is {}, allowed are finite numbers", name_, out.loss);
  for (const auto& [name, node] : graph_.metrics) {
    out.metrics.push_back(one_number(results[node], name));
    if (!std::isfinite(out.metrics.back()))
      fail(ErrorCode::invalid_argument, "the metric '{}' of the loss '{}' is {}, allowed are finite numbers", name, name_, out.metrics.back());
  }
  tape.backward(loss.tensor);
  variable->gradient.resize(logprobs.size(), 0.0);
  out.gradient.reserve(logprobs.size());
  for (std::size_t i = 0; i < logprobs.size(); ++i) {
    give_way_at(i);
    out.gradient.push_back(static_cast<float>(variable->gradient[i]));
    if (!std::isfinite(out.gradient.back()))
      fail(ErrorCode::invalid_argument, "the derivative of the loss '{}' by logprobs[{}] is {}, allowed are finite numbers", name_, i, variable->gradient[i]);
  }
  return out;
}

}  // namespace lockstep
