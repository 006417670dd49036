// A loss that a client traced with torch.fx, as plain data: nodes in execution order, each an operation of the table
// (graph_operations.h) on constants and earlier nodes. Parsed from the client's JSON and checked; nothing in it is executable.
//   const LossGraph graph = read_loss_graph(inputs, graph_json);
#pragma once
#include <nlohmann/json.hpp>

#include "losses/graph_value.h"

namespace lockstep {

struct GraphOperation;

struct GraphNode {
  std::string name, target;                   // target as the client said it: "torch.exp", "operator.mul", "sum"
  const GraphOperation* operation = nullptr;  // null: an input, or the end
  std::vector<GraphValue> arguments;
  std::vector<std::pair<std::string, GraphValue>> named;
};

struct LossGraph {
  struct Input {
    std::string name;
    std::int64_t rank = 1;  // 0 to 2
  };
  std::vector<Input> inputs;                                 // logprobs first; nodes 0, 1, ... are they
  std::vector<GraphNode> nodes;                              // in order, without the end
  std::size_t loss = 0;                                      // node
  std::vector<std::pair<std::string, std::size_t>> metrics;  // custom/NAME:sum or :mean, and their nodes
};

// Errors invalid_argument and unsupported: they name the node, what is wrong with it and what is allowed.
LossGraph read_loss_graph(const nlohmann::ordered_json& inputs, const nlohmann::ordered_json& graph);

}  // namespace lockstep
