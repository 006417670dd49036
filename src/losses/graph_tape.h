// Tensor arithmetic with reverse-mode differentiation, for one run of one traced loss.
//   GraphTape tape(budget); auto x = tape.variable({3}, {1, 2, 3}); auto y = tape.elementwise({x}, ...); tape.backward(loss); x->gradient
// Computation and memory count against a budget, so that no graph can exceed its share; what memory is taken is told before. Sums are chains in row-major
// order. One thread, which gives way between blocks of elements (base/give_way.h).
#pragma once
#include <span>

#include "losses/graph_value.h"

namespace lockstep {

// Told how many bytes a tape takes in all from now on, before it takes them; it throws where there is no room. Nothing is given back before the tape goes.
using GraphRoom = std::function<void(std::int64_t bytes)>;

class GraphTape {
 public:
  // `most_elements`: of all tensors together, and of the products of matrices.
  explicit GraphTape(std::int64_t most_elements, GraphRoom room = {}) : most_(most_elements), left_(most_elements), room_(std::move(room)) {}

  GraphTensorPtr constant(GraphShape shape, GraphElement element, std::vector<double> values);
  GraphTensorPtr scalar(double value, GraphElement element = GraphElement::real) { return constant({}, element, {value}); }
  GraphTensorPtr variable(GraphShape shape, std::vector<double> values);
  GraphTensorPtr copied(const GraphTensorPtr& x, GraphElement element);  // a constant

  // value(x) of the inputs' elements, broadcast to one shape; slope(k, x, y): derivative of y by x[k]. No slope: nothing is tracked.
  using Value = std::function<double(const double* x)>;
  using Slope = std::function<double(std::size_t k, const double* x, double y)>;
  GraphTensorPtr elementwise(const std::vector<GraphTensorPtr>& inputs, GraphElement element, const Value& value, Slope slope);
  // Element i is element index[i] of the concatenated parts.
  GraphTensorPtr gathered(const std::vector<GraphTensorPtr>& parts, GraphShape shape, std::vector<std::int64_t> index);
  // Element o is the sum of the elements i with index[i] == o, in order.
  GraphTensorPtr summed(const GraphTensorPtr& x, GraphShape shape, std::vector<std::int64_t> index);
  // A tensor of `values` that the caller computed from x; backward(dy, dx) adds to dx.
  using Backward = std::function<void(const std::vector<double>& dy, std::vector<double>& dx)>;
  GraphTensorPtr made_of(const GraphTensorPtr& x, GraphShape shape, std::vector<double> values, Backward backward);
  // [n, k] x [k, m].
  GraphTensorPtr product(const GraphTensorPtr& a, const GraphTensorPtr& b);

  // From a tensor of one element to all that it depends on.
  void backward(const GraphTensorPtr& loss);
  // Charges the budget, and tells the room of as much memory; error invalid_argument when the budget is exceeded. charged_size also returns a shape's number
  // of elements, with errors for a negative size or too many.
  void charge(std::int64_t elements);
  void charge_work(std::int64_t elements);    // that takes no memory
  void hold(std::int64_t elements);           // memory alone, of what is charged where it becomes a tensor
  void charge_copy(const GraphValue& value);  // with all that it holds
  std::int64_t charged_size(const GraphShape& shape);

 private:
  GraphTensorPtr shaped(GraphShape shape, GraphElement element);  // without its values, for which there is room
  GraphTensorPtr make(GraphShape shape, GraphElement element);
  void charge_gradients(const GraphTensorPtr& y, std::span<const GraphTensorPtr> inputs);

  const std::int64_t most_;
  std::int64_t left_;
  const GraphRoom room_;
  std::int64_t held_ = 0, told_ = 0;  // bytes
  std::vector<GraphTensorPtr> made_;  // tracked ones, in order
};

// The shape that all are broadcast to. Error invalid_argument that names them.
GraphShape broadcast_shape(std::span<const GraphTensorPtr> tensors);
// For each element of `to`, the index of the element of `from` that is broadcast there.
std::vector<std::int64_t> broadcast_index(const GraphShape& from, const GraphShape& to);
std::int64_t graph_size(const GraphShape& shape);
std::string graph_shape_text(const GraphShape& shape);  // "[2, 3]"

}  // namespace lockstep
