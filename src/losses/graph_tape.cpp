#include "losses/graph_tape.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "base/give_way.h"

namespace lockstep {
namespace {
constexpr std::int64_t kMostOfOne = std::int64_t{1} << 24;
constexpr std::int64_t kTensorElements = 96;  // what a tensor takes beside its values, in elements

std::vector<double>& gradient_of(GraphTensor& tensor) {
  if (tensor.gradient.empty()) grow_with_zeros(tensor.gradient, tensor.values.size());
  return tensor.gradient;
}
bool any_tracked(std::span<const GraphTensorPtr> inputs) {
  return std::any_of(inputs.begin(), inputs.end(), [](const GraphTensorPtr& t) { return t->tracked; });
}
}  // namespace

const char* graph_kind_name(GraphValue::Kind kind) {
  constexpr const char* kNames[] = {"None",    "a boolean",   "an integer",          "a float", "a string", "a tensor", "a tuple", "a list", "a dict",
                                    "a slice", "an ellipsis", "a constant of torch", "a node"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::int64_t graph_size(const GraphShape& shape) { return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>()); }

std::string graph_shape_text(const GraphShape& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

void GraphTape::charge_work(std::int64_t elements) {
  if (elements > left_)
    fail(ErrorCode::invalid_argument, "the loss computes more elements than a datum may take: {} so far, and {} here; allowed are {} in all", most_ - left_,
         elements, most_);
  left_ -= elements;
}

void GraphTape::hold(std::int64_t elements) {
  constexpr std::int64_t kStep = std::int64_t{1} << 20;  // that the room is told of
  held_ += elements * static_cast<std::int64_t>(sizeof(double));
  if (!room_ || held_ <= told_) return;
  told_ = (held_ + kStep - 1) / kStep * kStep;
  room_(told_);
}

void GraphTape::charge(std::int64_t elements) {
  charge_work(elements);
  hold(elements);
}

void GraphTape::charge_copy(const GraphValue& value) {
  constexpr std::int64_t kElements = 32;  // the memory of a value, in elements
  charge(kElements * value.count(left_ / kElements + 1));
}

std::int64_t GraphTape::charged_size(const GraphShape& shape) {
  std::int64_t size = 1, places = 1;  // places: as if no dimension were empty, for a sum over an empty one has all the others
  for (const std::int64_t n : shape) {
    if (n < 0) fail(ErrorCode::invalid_argument, "a tensor of shape {}; allowed are sizes from 0", graph_shape_text(shape));
    const std::int64_t wide = std::max<std::int64_t>(n, 1);
    if (places > kMostOfOne / wide) fail(ErrorCode::invalid_argument, "a tensor of shape {}; allowed are {} elements", graph_shape_text(shape), kMostOfOne);
    places *= wide;
    size *= n;
  }
  charge(size);
  return size;
}

GraphTensorPtr GraphTape::shaped(GraphShape shape, GraphElement element) {
  constexpr std::size_t kMostDimensions = 8;
  if (shape.size() > kMostDimensions) fail(ErrorCode::invalid_argument, "a tensor of {} dimensions; allowed are {}", shape.size(), kMostDimensions);
  charged_size(shape);
  hold(kTensorElements);
  auto tensor = std::make_shared<GraphTensor>();
  tensor->shape = std::move(shape);
  tensor->element = element;
  return tensor;
}

GraphTensorPtr GraphTape::make(GraphShape shape, GraphElement element) {
  GraphTensorPtr tensor = shaped(std::move(shape), element);
  grow_with_zeros(tensor->values, static_cast<std::size_t>(graph_size(tensor->shape)));
  return tensor;
}

GraphTensorPtr GraphTape::constant(GraphShape shape, GraphElement element, std::vector<double> values) {
  GraphTensorPtr tensor = shaped(std::move(shape), element);
  if (graph_size(tensor->shape) != std::ssize(values))
    fail(ErrorCode::invalid_argument, "{} values of shape {}", values.size(), graph_shape_text(tensor->shape));
  tensor->values = std::move(values);
  return tensor;
}

GraphTensorPtr GraphTape::copied(const GraphTensorPtr& x, GraphElement element) {
  GraphTensorPtr tensor = shaped(x->shape, element);
  tensor->values = copied_in_parts(x->values);
  return tensor;
}

GraphTensorPtr GraphTape::variable(GraphShape shape, std::vector<double> values) {
  GraphTensorPtr tensor = constant(std::move(shape), GraphElement::real, std::move(values));
  hold(tensor->size());  // its gradient
  tensor->tracked = true;
  return tensor;
}

// Their memory is taken in the backward; that they fit is known now.
void GraphTape::charge_gradients(const GraphTensorPtr& y, std::span<const GraphTensorPtr> inputs) {
  if (y->element != GraphElement::real || !any_tracked(inputs)) return;
  y->tracked = true;
  charge(y->size());
  made_.push_back(y);
}

GraphShape broadcast_shape(std::span<const GraphTensorPtr> tensors) {
  GraphShape shape;
  for (const GraphTensorPtr& t : tensors) {
    if (t->shape.size() > shape.size()) shape.insert(shape.begin(), t->shape.size() - shape.size(), 1);
    for (std::size_t i = 0; i < t->shape.size(); ++i) {
      std::int64_t& to = shape[shape.size() - t->shape.size() + i];
      const std::int64_t own = t->shape[i];
      if (own == to || own == 1) continue;
      if (to != 1) {
        std::vector<std::string> shapes;
        for (const GraphTensorPtr& one : tensors) shapes.push_back(graph_shape_text(one->shape));
        fail(ErrorCode::invalid_argument, "tensors of shapes {} do not broadcast to one", fmt::join(shapes, " and "));
      }
      to = own;
    }
  }
  return shape;
}

std::vector<std::int64_t> broadcast_index(const GraphShape& from, const GraphShape& to) {
  const auto size = static_cast<std::size_t>(graph_size(to));
  std::vector<std::int64_t> index;
  grow_with_zeros(index, size);
  if (from == to) {
    for (std::size_t i = 0; i < size; ++i) {
      give_way_at(i);
      index[i] = static_cast<std::int64_t>(i);
    }
    return index;
  }
  std::vector<std::int64_t> step(to.size(), 0), at(to.size(), 0);
  std::int64_t stride = 1;
  for (std::size_t i = from.size(); i-- > 0;) {
    step[to.size() - from.size() + i] = from[i] == 1 ? 0 : stride;
    stride *= from[i];
  }
  std::int64_t place = 0;
  for (std::size_t i = 0; i < size; ++i) {
    give_way_at(i);
    index[i] = place;
    for (std::size_t d = to.size(); d-- > 0;) {
      place += step[d];
      if (++at[d] < to[d]) break;
      place -= step[d] * to[d];
      at[d] = 0;
    }
  }
  return index;
}

GraphTensorPtr GraphTape::elementwise(const std::vector<GraphTensorPtr>& inputs, GraphElement element, const Value& value, Slope slope) {
  GraphTensorPtr y = make(broadcast_shape(inputs), element);
  const std::size_t count = inputs.size(), size = y->values.size();
  std::vector<std::vector<std::int64_t>> index(count);
  for (std::size_t k = 0; k < count; ++k)
    if (inputs[k]->shape != y->shape) {
      charge(y->size());
      index[k] = broadcast_index(inputs[k]->shape, y->shape);
    }
  const auto place = [](const std::vector<std::int64_t>& of, std::size_t i) { return of.empty() ? i : static_cast<std::size_t>(of[i]); };
  std::vector<double> x(count);
  for (std::size_t i = 0; i < size; ++i) {
    give_way_at(i);
    for (std::size_t k = 0; k < count; ++k) x[k] = inputs[k]->values[place(index[k], i)];
    y->values[i] = value(x.data());
  }
  if (!slope) return y;
  charge_gradients(y, inputs);
  if (!y->tracked) return y;
  y->backward = [self = y.get(), inputs, index = std::move(index), slope = std::move(slope), place] {
    std::vector<double> x(inputs.size());
    for (std::size_t i = 0; i < self->values.size(); ++i) {
      give_way_at(i);
      for (std::size_t k = 0; k < inputs.size(); ++k) x[k] = inputs[k]->values[place(index[k], i)];
      for (std::size_t k = 0; k < inputs.size(); ++k) {
        if (!inputs[k]->tracked) continue;
        std::vector<double>& to = gradient_of(*inputs[k]);
        const double s = slope(k, x.data(), self->values[i]);
        if (s != 0) to[place(index[k], i)] += self->gradient[i] * s;  // what is not chosen takes nothing, not 0 x infinity
      }
    }
  };
  return y;
}

GraphTensorPtr GraphTape::gathered(const std::vector<GraphTensorPtr>& parts, GraphShape shape, std::vector<std::int64_t> index) {
  GraphElement element = GraphElement::boolean;
  std::vector<std::size_t> begin{0};
  for (const GraphTensorPtr& part : parts) {
    element = std::max(element, part->element);
    begin.push_back(begin.back() + part->values.size());
  }
  GraphTensorPtr y = make(std::move(shape), element);
  charge(y->size());  // the index
  const auto part_of = [begin](std::int64_t at) {
    return static_cast<std::size_t>(std::upper_bound(begin.begin(), begin.end(), static_cast<std::size_t>(at)) - begin.begin()) - 1;
  };
  for (std::size_t i = 0; i < y->values.size(); ++i) {
    give_way_at(i);
    const std::size_t part = part_of(index[i]);
    y->values[i] = parts[part]->values[static_cast<std::size_t>(index[i]) - begin[part]];
  }
  charge_gradients(y, parts);
  if (y->tracked)
    y->backward = [self = y.get(), parts, begin, part_of, index = std::move(index)] {
      for (std::size_t i = 0; i < self->values.size(); ++i) {
        give_way_at(i);
        const std::size_t part = part_of(index[i]);
        if (parts[part]->tracked) gradient_of(*parts[part])[static_cast<std::size_t>(index[i]) - begin[part]] += self->gradient[i];
      }
    };
  return y;
}

GraphTensorPtr GraphTape::summed(const GraphTensorPtr& x, GraphShape shape, std::vector<std::int64_t> index) {
  GraphTensorPtr y = make(std::move(shape), x->element == GraphElement::real ? GraphElement::real : GraphElement::integer);
  charge(x->size());
  for (std::size_t i = 0; i < x->values.size(); ++i) {
    give_way_at(i);
    y->values[static_cast<std::size_t>(index[i])] += x->values[i];
  }
  charge_gradients(y, std::span(&x, 1));
  if (y->tracked)
    y->backward = [self = y.get(), x, index = std::move(index)] {
      std::vector<double>& to = gradient_of(*x);
      for (std::size_t i = 0; i < to.size(); ++i) {
        give_way_at(i);
        to[i] += self->gradient[static_cast<std::size_t>(index[i])];
      }
    };
  return y;
}

GraphTensorPtr GraphTape::made_of(const GraphTensorPtr& x, GraphShape shape, std::vector<double> values, Backward backward) {
  GraphTensorPtr y = constant(std::move(shape), x->element, std::move(values));
  charge_gradients(y, std::span(&x, 1));
  if (y->tracked) y->backward = [self = y.get(), x, backward = std::move(backward)] { backward(self->gradient, gradient_of(*x)); };
  return y;
}

GraphTensorPtr GraphTape::product(const GraphTensorPtr& a, const GraphTensorPtr& b) {
  const auto n = static_cast<std::size_t>(a->shape[0]), inner = static_cast<std::size_t>(a->shape[1]), m = static_cast<std::size_t>(b->shape[1]);
  GraphTensorPtr y = make({a->shape[0], b->shape[1]}, std::max(a->element, b->element));
  const std::size_t rows = m == 0 ? 0 : n;  // those of nothing cost no memory, and may be many
  for (std::size_t i = 0; i < rows; ++i) charge_work(static_cast<std::int64_t>(inner * m));
  std::size_t done = 0;
  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t k = 0; k < inner; ++k)
      for (std::size_t j = 0; j < m; ++j) {
        give_way_at(done++);
        y->values[i * m + j] += a->values[i * inner + k] * b->values[k * m + j];
      }
  const std::vector<GraphTensorPtr> inputs{a, b};
  charge_gradients(y, inputs);
  if (y->tracked)
    y->backward = [self = y.get(), a, b, n, inner, m] {
      std::size_t gone = 0;
      for (std::size_t i = 0; i < n; ++i)
        for (std::size_t k = 0; k < inner; ++k)
          for (std::size_t j = 0; j < m; ++j) {
            give_way_at(gone++);
            const double g = self->gradient[i * m + j];
            if (a->tracked) gradient_of(*a)[i * inner + k] += g * b->values[k * m + j];
            if (b->tracked) gradient_of(*b)[k * m + j] += g * a->values[i * inner + k];
          }
    };
  return y;
}

void GraphTape::backward(const GraphTensorPtr& loss) {
  if (!loss->tracked) return;
  gradient_of(*loss)[0] = 1.0;
  for (auto tensor = made_.rbegin(); tensor != made_.rend(); ++tensor)
    if (!(*tensor)->gradient.empty() && (*tensor)->backward) {
      give_way();
      (*tensor)->backward();
    }
}

}  // namespace lockstep
