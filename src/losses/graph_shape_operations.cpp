// Operations that move elements: reshaping, joining, selecting; new tensors; matrix products.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/give_way.h"
#include "losses/graph_operations.h"

namespace lockstep {
namespace {

std::vector<std::int64_t> steps_of(const GraphShape& shape) {
  std::vector<std::int64_t> steps(shape.size(), 1);
  for (std::size_t i = shape.size(); i-- > 1;) steps[i - 1] = steps[i] * shape[i];
  return steps;
}

// Element at `place` (one number per dimension of `shape`) is x's of number `of(place)`.
template <class F>
GraphTensorPtr moved(GraphTape& tape, const GraphTensorPtr& x, const GraphShape& shape, const F& of) {
  const std::int64_t size = tape.charged_size(shape);
  std::vector<std::int64_t> index, place(shape.size(), 0);
  grow_with_zeros(index, static_cast<std::size_t>(size));
  for (std::size_t i = 0; i < index.size(); ++i) {
    give_way_at(i);
    index[i] = of(place);
    for (std::size_t d = shape.size(); d-- > 0;) {
      if (++place[d] < shape[d]) break;
      place[d] = 0;
    }
  }
  return tape.gathered({x}, shape, std::move(index));
}

GraphTensorPtr permuted(GraphTape& tape, const GraphTensorPtr& x, const std::vector<std::size_t>& order) {
  const std::vector<std::int64_t> steps = steps_of(x->shape);
  GraphShape shape;
  for (const std::size_t d : order) shape.push_back(x->shape[d]);
  return moved(tape, x, shape, [&](const std::vector<std::int64_t>& place) {
    std::int64_t at = 0;
    for (std::size_t i = 0; i < order.size(); ++i) at += place[i] * steps[order[i]];
    return at;
  });
}

GraphTensorPtr transposed(GraphTape& tape, const GraphTensorPtr& x, std::int64_t a, std::int64_t b) {
  std::vector<std::size_t> order(x->shape.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  if (order.empty()) return x;
  std::swap(order[static_cast<std::size_t>(graph_dimension(a, x->rank()))], order[static_cast<std::size_t>(graph_dimension(b, x->rank()))]);
  return permuted(tape, x, order);
}

// With one -1, which is what is left.
GraphShape settled_shape(GraphShape shape, std::int64_t size) {
  std::int64_t known = 1;
  std::size_t open = shape.size();
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == -1 && open == shape.size()) open = i;
    else if (shape[i] < 0 || shape[i] > (std::int64_t{1} << 30) || (known *= shape[i]) > (std::int64_t{1} << 30))
      fail(ErrorCode::invalid_argument, "the shape {} of {} elements; allowed are sizes from 0, and one -1", graph_shape_text(shape), size);
  }
  if (open < shape.size()) {
    if (known == 0 || size % known != 0) fail(ErrorCode::invalid_argument, "the shape {} does not fit {} elements", graph_shape_text(shape), size);
    shape[open] = size / known;
  } else if (known != size) {
    fail(ErrorCode::invalid_argument, "the shape {} does not fit {} elements", graph_shape_text(shape), size);
  }
  return shape;
}

GraphTensorPtr expanded(GraphTape& tape, const GraphTensorPtr& x, GraphShape shape) {
  const std::size_t more = shape.size() - std::min(shape.size(), x->shape.size());
  for (std::size_t i = 0; i < shape.size(); ++i) {
    const std::int64_t own = i < more ? 1 : x->shape[i - more];
    if (shape[i] == -1 && i >= more) shape[i] = own;
    if (x->shape.size() > shape.size() || shape[i] < 0 || (own != 1 && own != shape[i]))
      fail(ErrorCode::invalid_argument, "a tensor of shape {} is expanded to {}", graph_shape_text(x->shape), graph_shape_text(shape));
  }
  if (x->shape.size() > shape.size())
    fail(ErrorCode::invalid_argument, "a tensor of shape {} is expanded to {}", graph_shape_text(x->shape), graph_shape_text(shape));
  tape.charged_size(shape);
  return tape.gathered({x}, shape, broadcast_index(x->shape, shape));
}

GraphTensorPtr repeated(GraphTape& tape, const GraphTensorPtr& x, const std::vector<std::int64_t>& times) {
  if (times.size() < x->shape.size())
    fail(ErrorCode::invalid_argument, "{} repeats of a tensor of {} dimensions; allowed are as many, or more", times.size(), x->rank());
  GraphShape own(times.size() - x->shape.size(), 1), shape;
  own.insert(own.end(), x->shape.begin(), x->shape.end());
  for (std::size_t i = 0; i < times.size(); ++i) {
    if (times[i] < 0 || times[i] > (std::int64_t{1} << 30)) fail(ErrorCode::invalid_argument, "{} repeats, allowed is 0 and up", times[i]);
    shape.push_back(own[i] * times[i]);
  }
  const std::vector<std::int64_t> steps = steps_of(own);
  return moved(tape, x, shape, [&](const std::vector<std::int64_t>& place) {
    std::int64_t at = 0;
    for (std::size_t i = 0; i < place.size(); ++i) at += place[i] % own[i] * steps[i];
    return at;
  });
}

std::vector<GraphTensorPtr> tensors_of(const GraphCall& call, std::size_t i) {
  if (!call.value(i).is_sequence() || call.value(i).items.empty()) call.refuse(i, "a tuple or list of tensors");
  std::vector<GraphTensorPtr> tensors;
  for (const GraphValue& one : call.value(i).items) {
    if (!one.is(GraphValue::Kind::tensor)) call.refuse(i, "a tuple or list of tensors alone");
    tensors.push_back(one.tensor);
  }
  return tensors;
}

GraphTensorPtr concatenated(GraphTape& tape, const std::vector<GraphTensorPtr>& parts, std::int64_t dimension) {
  const std::int64_t rank = parts[0]->rank();
  if (rank == 0) fail(ErrorCode::invalid_argument, "cat of tensors without a dimension; allowed is stack");
  const auto d = static_cast<std::size_t>(graph_dimension(dimension, rank));
  GraphShape shape = parts[0]->shape;
  shape[d] = 0;
  std::int64_t all = 0;
  for (const GraphTensorPtr& part : parts) {
    GraphShape like = part->shape;
    if (like.size() != shape.size())
      fail(ErrorCode::invalid_argument, "cat of shapes {} and {}", graph_shape_text(parts[0]->shape), graph_shape_text(part->shape));
    shape[d] += std::exchange(like[d], shape[d]);
    for (std::size_t i = 0; i < like.size(); ++i)
      if (i != d && like[i] != shape[i])
        fail(ErrorCode::invalid_argument, "cat of shapes {} and {}", graph_shape_text(parts[0]->shape), graph_shape_text(part->shape));
    all += part->size();
  }
  tape.charge(all);
  std::vector<std::int64_t> index;
  index.reserve(static_cast<std::size_t>(all));
  std::int64_t before = all == 0 ? 0 : 1;
  for (std::size_t i = 0; i < d; ++i) before *= shape[i];
  std::vector<std::pair<std::int64_t, std::int64_t>> full;  // begin and elements a block of the parts that have any: others would be visited for nothing
  std::int64_t begin = 0;
  for (const GraphTensorPtr& part : parts) {
    if (part->size() > 0) full.emplace_back(begin, part->size() / before);
    begin += part->size();
  }
  for (std::int64_t block = 0; block < before; ++block)
    for (const auto& [first, own] : full)
      for (std::int64_t i = 0; i < own; ++i) {
        give_way_at(index.size());
        index.push_back(first + block * own + i);
      }
  return tape.gathered(parts, shape, std::move(index));
}

GraphTensorPtr unsqueezed(GraphTape& tape, const GraphTensorPtr& x, std::int64_t dimension) {
  GraphShape shape = x->shape;
  const std::int64_t most = x->rank() + 1;
  if (dimension < -most || dimension >= most) fail(ErrorCode::invalid_argument, "dimension {} of a tensor of {}", dimension, x->rank());
  shape.insert(shape.begin() + (dimension < 0 ? dimension + most : dimension), 1);
  return graph_reshaped(tape, x, shape);
}

GraphTensorPtr multiplied(GraphTape& tape, const GraphTensorPtr& a, const GraphTensorPtr& b) {
  if (a->rank() < 1 || a->rank() > 2 || b->rank() < 1 || b->rank() > 2)
    fail(ErrorCode::invalid_argument, "a product of tensors of shapes {} and {}; allowed are vectors and matrices", graph_shape_text(a->shape),
         graph_shape_text(b->shape));
  const GraphTensorPtr left = a->rank() == 1 ? graph_reshaped(tape, a, {1, a->size()}) : a,
                       right = b->rank() == 1 ? graph_reshaped(tape, b, {b->size(), 1}) : b;
  if (left->shape[1] != right->shape[0])
    fail(ErrorCode::invalid_argument, "a product of shapes {} and {}", graph_shape_text(a->shape), graph_shape_text(b->shape));
  GraphShape shape;
  if (a->rank() == 2) shape.push_back(a->shape[0]);
  if (b->rank() == 2) shape.push_back(b->shape[1]);
  return graph_reshaped(tape, tape.product(left, right), shape);
}

// index [.., n, ..] of positions along d; the other dimensions at most x's.
GraphTensorPtr gathered_along(GraphTape& tape, const GraphTensorPtr& x, std::int64_t dimension, const GraphTensorPtr& index) {
  const auto d = static_cast<std::size_t>(graph_dimension(dimension, x->rank()));
  if (index->element != GraphElement::integer || index->rank() != x->rank())
    fail(ErrorCode::invalid_argument, "the index of shape {} for a tensor of {}; allowed are integers of as many dimensions", graph_shape_text(index->shape),
         graph_shape_text(x->shape));
  for (std::size_t i = 0; i < index->shape.size(); ++i)
    if (i != d && index->shape[i] > x->shape[i])
      fail(ErrorCode::invalid_argument, "the index of shape {} for a tensor of {}", graph_shape_text(index->shape), graph_shape_text(x->shape));
  if (x->shape.empty()) return x;
  const std::vector<std::int64_t> steps = steps_of(x->shape);
  std::size_t next = 0;
  return moved(tape, x, index->shape, [&](const std::vector<std::int64_t>& place) {
    std::int64_t at = 0;
    if (next >= index->values.size()) return at;
    const double chosen = index->values[next++];
    if (!(chosen >= 0 && chosen < static_cast<double>(x->shape[d])))
      fail(ErrorCode::invalid_argument, "the index has {}, allowed are 0 to {}", chosen, x->shape[d] - 1);
    for (std::size_t i = 0; i < place.size(); ++i) at += (i == d ? static_cast<std::int64_t>(chosen) : place[i]) * steps[i];
    return at;
  });
}

GraphTensorPtr part_of_dimension(GraphTape& tape, const GraphTensorPtr& x, std::int64_t dimension, std::vector<std::int64_t> positions) {
  const auto d = static_cast<std::size_t>(graph_dimension(dimension, x->rank()));
  if (x->shape.empty()) fail(ErrorCode::invalid_argument, "a part of a tensor without a dimension");
  for (std::size_t i = 0; i < positions.size(); ++i) {
    give_way_at(i);
    std::int64_t& p = positions[i];
    if (p < -x->shape[d] || p >= x->shape[d]) fail(ErrorCode::invalid_argument, "place {} of a dimension of {}", p, x->shape[d]);
    if (p < 0) p += x->shape[d];
  }
  GraphShape shape = x->shape;
  shape[d] = static_cast<std::int64_t>(positions.size());
  const std::vector<std::int64_t> steps = steps_of(x->shape);
  return moved(tape, x, shape, [&](const std::vector<std::int64_t>& place) {
    std::int64_t at = 0;
    for (std::size_t i = 0; i < place.size() && !positions.empty(); ++i) at += (i == d ? positions[static_cast<std::size_t>(place[i])] : place[i]) * steps[i];
    return at;
  });
}

std::vector<std::int64_t> places(GraphTape& tape, std::int64_t begin, std::int64_t count, std::int64_t step = 1) {
  constexpr std::int64_t kFurthest = std::int64_t{1} << 40;
  if (count < 0 || begin > kFurthest || begin < -kFurthest) fail(ErrorCode::invalid_argument, "{} places from {}", count, begin);
  tape.charge(count);
  std::vector<std::int64_t> out;
  grow_with_zeros(out, static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < out.size(); ++i) {
    give_way_at(i);
    out[i] = begin + static_cast<std::int64_t>(i) * step;
  }
  return out;
}

GraphElement element_of(const GraphCall& call, std::size_t dtype, GraphElement standard) {
  if (!call.has(dtype)) return standard;
  if (!call.value(dtype).is(GraphValue::Kind::constant)) call.refuse(dtype, "a dtype");
  return graph_dtype(call.value(dtype).text);
}

GraphTensorPtr filled(GraphTape& tape, const GraphShape& shape, GraphElement element, double value) {
  const std::int64_t size = tape.charged_size(shape);
  return tape.constant(shape, element, filled_in_parts(static_cast<std::size_t>(size), value));
}

GraphValue counted_up(const GraphCall& call) {
  const bool one = !call.has(1);
  const double begin = one ? 0.0 : call.number(0), end = one ? call.number(0) : call.number(1), step = call.number_or(2, 1.0);
  bool whole = true;
  for (std::size_t i = 0; i < 3; ++i) whole = whole && (!call.has(i) || call.value(i).is_whole());
  const double count = std::ceil((end - begin) / step);
  if (step == 0 || !std::isfinite(count) || count < 0 || count > 1e8) fail(ErrorCode::invalid_argument, "arange from {} to {} by {}", begin, end, step);
  call.tape().charge(static_cast<std::int64_t>(count));
  std::vector<double> values;
  grow_with_zeros(values, static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) {
    give_way_at(i);
    values[i] = begin + static_cast<double>(i) * step;
  }
  const auto size = static_cast<std::int64_t>(values.size());
  return GraphValue::of(call.tape().constant({size}, element_of(call, 3, whole ? GraphElement::integer : GraphElement::real), std::move(values)));
}

void add_shapes(GraphOperationRows& rows) {
  const auto row = [&](const char* name, std::vector<std::string> parameters, auto work) {
    rows.push_back({name, std::move(parameters), [work](const GraphCall& call) { return GraphValue::of(work(call.tape(), call.proper_tensor(0), call)); }});
  };
  using Tape = GraphTape;
  using Tensor = GraphTensorPtr;
  using Call = const GraphCall&;
  row("reshape", {"input", "*shape"}, [](Tape& t, const Tensor& x, Call c) { return graph_reshaped(t, x, settled_shape(c.integers(1), x->size())); });
  row("reshape_as", {"input", "other"},
      [](Tape& t, const Tensor& x, Call c) { return graph_reshaped(t, x, settled_shape(c.proper_tensor(1)->shape, x->size())); });
  row("flatten", {"input", "start_dim", "end_dim"}, [](Tape& t, const Tensor& x, Call c) {
    const std::int64_t first = graph_dimension(c.integer_or(1, 0), x->rank()), last = graph_dimension(c.integer_or(2, -1), x->rank());
    if (x->shape.empty()) return graph_reshaped(t, x, {1});
    if (first > last) fail(ErrorCode::invalid_argument, "dimensions {} to {} become one", first, last);
    GraphShape shape(x->shape.begin(), x->shape.begin() + first);
    shape.push_back(graph_size(GraphShape(x->shape.begin() + first, x->shape.begin() + last + 1)));
    shape.insert(shape.end(), x->shape.begin() + last + 1, x->shape.end());
    return graph_reshaped(t, x, shape);
  });
  row("unsqueeze", {"input", "dim"}, [](Tape& t, const Tensor& x, Call c) { return unsqueezed(t, x, c.integer(1)); });
  row("squeeze", {"input", "dim"}, [](Tape& t, const Tensor& x, Call c) {
    std::vector<bool> goes(x->shape.size(), !c.has(1));
    if (c.has(1) && !x->shape.empty())
      for (const std::int64_t d : c.integers(1)) goes[static_cast<std::size_t>(graph_dimension(d, x->rank()))] = true;
    GraphShape shape;
    for (std::size_t i = 0; i < x->shape.size(); ++i)
      if (!goes[i] || x->shape[i] != 1) shape.push_back(x->shape[i]);
    return graph_reshaped(t, x, shape);
  });
  row("transpose", {"input", "dim0", "dim1"}, [](Tape& t, const Tensor& x, Call c) { return transposed(t, x, c.integer(1), c.integer(2)); });
  row("t", {"input"}, [](Tape& t, const Tensor& x, Call) { return x->rank() < 2 ? x : transposed(t, x, 0, 1); });
  row("permute", {"input", "*dims"}, [](Tape& t, const Tensor& x, Call c) {
    std::vector<std::size_t> order;
    for (const std::int64_t d : c.integers(1)) order.push_back(static_cast<std::size_t>(graph_dimension(d, x->rank())));
    std::vector<std::size_t> sorted = order;
    std::sort(sorted.begin(), sorted.end());
    for (std::size_t i = 0; i < sorted.size(); ++i)
      if (sorted[i] != i) fail(ErrorCode::invalid_argument, "dims do not name each dimension once");
    if (order.size() != x->shape.size()) fail(ErrorCode::invalid_argument, "{} dims of a tensor of {} dimensions", order.size(), x->rank());
    return permuted(t, x, order);
  });
  row("expand", {"input", "*size"}, [](Tape& t, const Tensor& x, Call c) { return expanded(t, x, c.integers(1)); });
  row("expand_as", {"input", "other"}, [](Tape& t, const Tensor& x, Call c) { return expanded(t, x, c.proper_tensor(1)->shape); });
  row("repeat", {"input", "*repeats"}, [](Tape& t, const Tensor& x, Call c) { return repeated(t, x, c.integers(1)); });
  row("flip", {"input", "*dims"}, [](Tape& t, const Tensor& x, Call c) {
    Tensor y = x;
    for (const std::int64_t d : c.integers(1)) {
      const std::int64_t n = x->shape.empty() ? 0 : x->shape[static_cast<std::size_t>(graph_dimension(d, x->rank()))];
      if (n > 0) y = part_of_dimension(t, y, d, places(t, n - 1, n, -1));
    }
    return y;
  });
  row("roll", {"input", "shifts", "dims"}, [](Tape& t, const Tensor& x, Call c) {
    const std::int64_t shift = c.integer(1);
    const Tensor flat = c.has(2) ? x : graph_reshaped(t, x, {x->size()});
    const std::int64_t d = c.has(2) ? c.integer(2) : 0, n = flat->shape.empty() ? 0 : flat->shape[static_cast<std::size_t>(graph_dimension(d, flat->rank()))];
    if (n == 0) return x;
    std::vector<std::int64_t> from = places(t, 0, n);
    for (std::size_t i = 0; i < from.size(); ++i) {
      give_way_at(i);
      from[i] = ((from[i] - shift % n) % n + n) % n;
    }
    return graph_reshaped(t, part_of_dimension(t, flat, d, std::move(from)), x->shape);
  });
  row("narrow", {"input", "dim", "start", "length"},
      [](Tape& t, const Tensor& x, Call c) { return part_of_dimension(t, x, c.integer(1), places(t, c.integer(2), c.integer(3))); });
  row("select", {"input", "dim", "index"}, [](Tape& t, const Tensor& x, Call c) {
    const Tensor y = part_of_dimension(t, x, c.integer(1), {c.integer(2)});
    GraphShape shape = y->shape;
    shape.erase(shape.begin() + graph_dimension(c.integer(1), x->rank()));
    return graph_reshaped(t, y, shape);
  });
  row("index_select", {"input", "dim", "index"}, [](Tape& t, const Tensor& x, Call c) {
    const Tensor index = c.proper_tensor(2);
    if (index->element != GraphElement::integer || index->rank() > 1) c.refuse(2, "a vector of integers");
    std::vector<std::int64_t> from = places(t, 0, index->size());
    for (std::size_t i = 0; i < from.size(); ++i) {
      give_way_at(i);
      from[i] = graph_whole(index->values[i]);
    }
    return part_of_dimension(t, x, c.integer(1), std::move(from));
  });
  row("gather", {"input", "dim", "index"}, [](Tape& t, const Tensor& x, Call c) { return gathered_along(t, x, c.integer(1), c.proper_tensor(2)); });
  row("matmul", {"input", "other"}, [](Tape& t, const Tensor& x, Call c) { return multiplied(t, x, c.proper_tensor(1)); });
  for (const char* name : {"mm", "mv", "dot", "inner"})
    row(name, {"input", "other"}, [](Tape& t, const Tensor& x, Call c) { return multiplied(t, x, c.proper_tensor(1)); });
  for (const char* name : {"clone", "contiguous", "cpu"}) row(name, {"input"}, [](Tape&, const Tensor& x, Call) { return x; });
  row("detach", {"input"}, [](Tape& t, const Tensor& x, Call) { return graph_detached(t, x); });
  for (const auto& [name, element] :
       {std::pair("float", GraphElement::real), std::pair("long", GraphElement::integer), std::pair("bool", GraphElement::boolean)})
    row(name, {"input"}, [element = element](Tape& t, const Tensor& x, Call) { return graph_cast(t, x, element); });
  row("type_as", {"input", "other"}, [](Tape& t, const Tensor& x, Call c) { return graph_cast(t, x, c.proper_tensor(1)->element); });
  row("to", {"input", "*what", "dtype"}, [](Tape& t, const Tensor& x, Call c) {
    GraphTensorPtr y = x;
    const auto as = [&](const GraphValue& v) {
      if (v.is(GraphValue::Kind::tensor)) y = graph_cast(t, x, v.tensor->element);
      else if (v.is(GraphValue::Kind::constant) && v.text != "cpu" && !v.text.starts_with("cuda") && v.text != "meta")
        y = graph_cast(t, x, graph_dtype(v.text));
    };
    if (c.value(1).is_sequence())
      for (const GraphValue& v : c.value(1).items) as(v);
    if (c.has(2)) as(c.value(2));
    return y;
  });
}

void add_new_tensors(GraphOperationRows& rows) {
  for (const auto& [name, value] : {std::pair("zeros", 0.0), std::pair("ones", 1.0)}) {
    rows.push_back({name, {"*size", "dtype"}, [value = value](const GraphCall& c) {
                      return GraphValue::of(filled(c.tape(), c.integers(0), element_of(c, 1, GraphElement::real), value));
                    }});
    rows.push_back({std::string(name) + "_like", {"input", "dtype"}, [value = value](const GraphCall& c) {
                      return GraphValue::of(filled(c.tape(), c.proper_tensor(0)->shape, element_of(c, 1, c.proper_tensor(0)->element), value));
                    }});
    rows.push_back({"new_" + std::string(name), {"input", "*size", "dtype"}, [value = value](const GraphCall& c) {
                      return GraphValue::of(filled(c.tape(), c.integers(1), element_of(c, 2, c.proper_tensor(0)->element), value));
                    }});
  }
  const auto element_of_number = [](const GraphCall& c, std::size_t i) {
    return c.has(i) && c.value(i).is_whole() ? GraphElement::integer : GraphElement::real;
  };
  rows.push_back({"full", {"size", "fill_value", "dtype"}, [=](const GraphCall& c) {
                    return GraphValue::of(filled(c.tape(), c.integers(0), element_of(c, 2, element_of_number(c, 1)), c.number(1)));
                  }});
  rows.push_back({"full_like", {"input", "fill_value", "dtype"}, [](const GraphCall& c) {
                    return GraphValue::of(filled(c.tape(), c.proper_tensor(0)->shape, element_of(c, 2, c.proper_tensor(0)->element), c.number(1)));
                  }});
  rows.push_back({"arange", {"start", "end", "step", "dtype"}, counted_up});
}

void add_joining(GraphOperationRows& rows) {
  rows.push_back({"cat", {"tensors", "dim"}, [](const GraphCall& c) { return GraphValue::of(concatenated(c.tape(), tensors_of(c, 0), c.integer_or(1, 0))); }});
  rows.push_back({"stack", {"tensors", "dim"}, [](const GraphCall& c) {
                    std::vector<GraphTensorPtr> parts = tensors_of(c, 0);
                    for (GraphTensorPtr& part : parts) {
                      if (part->shape != c.value(0).items[0].tensor->shape) fail(ErrorCode::invalid_argument, "stack of tensors of several shapes");
                      part = unsqueezed(c.tape(), part, c.integer_or(1, 0));
                    }
                    return GraphValue::of(concatenated(c.tape(), parts, c.integer_or(1, 0)));
                  }});
  rows.push_back({"unbind", {"input", "dim"}, [](const GraphCall& c) {
                    const GraphTensorPtr x = c.proper_tensor(0);
                    const std::int64_t d = graph_dimension(c.integer_or(1, 0), x->rank());
                    if (x->shape.empty()) c.refuse(0, "a tensor of at least one dimension");
                    GraphShape shape = x->shape;
                    shape.erase(shape.begin() + d);
                    std::vector<GraphValue> parts;
                    for (std::int64_t i = 0; i < x->shape[static_cast<std::size_t>(d)]; ++i) {
                      c.tape().charge(16);
                      parts.push_back(GraphValue::of(graph_reshaped(c.tape(), part_of_dimension(c.tape(), x, d, {i}), shape)));
                    }
                    return GraphValue::of(std::move(parts));
                  }});
  rows.push_back({"chunk", {"input", "chunks", "dim"}, [](const GraphCall& c) {
                    const GraphTensorPtr x = c.proper_tensor(0);
                    const std::int64_t d = graph_dimension(c.integer_or(2, 0), x->rank()), count = c.integer(1);
                    if (x->shape.empty() || count < 1 || count > 1000) c.refuse(1, "1 to 1000");
                    const std::int64_t n = x->shape[static_cast<std::size_t>(d)], each = std::max<std::int64_t>(1, (n + count - 1) / count);
                    std::vector<GraphValue> parts;
                    for (std::int64_t begin = 0; begin < n; begin += each)
                      parts.push_back(GraphValue::of(part_of_dimension(c.tape(), x, d, places(c.tape(), begin, std::min(each, n - begin)))));
                    return GraphValue::of(std::move(parts));
                  }});
  rows.push_back({"masked_select", {"input", "mask"}, [](const GraphCall& c) {
                    const std::vector<GraphTensorPtr> both{c.proper_tensor(0), c.proper_tensor(1)};
                    const GraphShape shape = broadcast_shape(both);
                    return graph_item(c, GraphValue::of(expanded(c.tape(), both[0], shape)), GraphValue::of(expanded(c.tape(), both[1], shape)));
                  }});
}

}  // namespace

GraphTensorPtr graph_reshaped(GraphTape& tape, const GraphTensorPtr& x, GraphShape shape) {
  if (x->shape == shape) return x;
  std::vector<std::int64_t> index = places(tape, 0, x->size());
  return tape.gathered({x}, std::move(shape), std::move(index));
}

void add_shape_operations(GraphOperationRows& rows) {
  add_shapes(rows);
  add_new_tensors(rows);
  add_joining(rows);
}

}  // namespace lockstep
