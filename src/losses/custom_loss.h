// Runs a client's traced loss: from the log-probabilities of one datum's targets and the datum's tensors to a loss, its
// derivative by each log-probability, and metrics.
//   const CustomLoss loss("mine", inputs, graph); const auto r = loss.run(logprobs, shape, datum.inputs);
// Arithmetic is double with our own functions, in the order of the nodes; a datum's result depends on that datum alone. Immutable; any thread.
#pragma once
#include <map>

#include "losses/datum.h"
#include "losses/graph_tape.h"
#include "losses/loss_graph.h"

namespace lockstep {

class CustomLoss {
 public:
  // Errors invalid_argument and unsupported for a graph that cannot be run, with the name of the node at fault.
  CustomLoss(std::string name, const nlohmann::ordered_json& inputs, const nlohmann::ordered_json& graph);

  struct Result {
    double loss = 0;
    std::vector<float> gradient;  // by each log-probability
    std::vector<double> metrics;  // as metric_names()
  };
  // `logprobs` has the datum's shape of target_tokens, [T] or [T, K]. Errors invalid_argument: an input that is missing or of another
  // rank, an operation that its tensors do not allow, more work than a datum may take, a result that is no finite number.
  // `room`, if given, is told of the memory before it is taken, all of which is free again at the end; what it throws is the error of the node that asked.
  Result run(const std::vector<float>& logprobs, const std::vector<std::int64_t>& shape, const std::map<std::string, NamedTensor>& inputs,
             const GraphRoom& room = {}) const;

  const std::string& name() const { return name_; }
  std::int64_t bytes() const { return bytes_; }  // roughly the memory that it takes
  std::vector<std::string> metric_names() const;

 private:
  std::string name_;
  LossGraph graph_;
  std::int64_t bytes_;
};

}  // namespace lockstep
