// Python operations around tensors: attributes, indexing, the math module.
#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "base/give_way.h"
#include "losses/graph_math.h"
#include "losses/graph_operations.h"

namespace lockstep {
namespace {

GraphValue shape_value(const GraphTensorPtr& x) {
  std::vector<GraphValue> sizes;
  for (const std::int64_t n : x->shape) sizes.push_back(GraphValue::of(n));
  return GraphValue::of(std::move(sizes));
}

GraphValue attribute(const GraphCall& call) {
  const GraphValue& of = call.value(0);
  const std::string name = call.text_or(1, "");
  if (of.is(GraphValue::Kind::dictionary)) {
    const auto found = std::find(of.keys.begin(), of.keys.end(), name);
    if (found != of.keys.end()) return of.items[static_cast<std::size_t>(found - of.keys.begin())];
  } else if (of.is(GraphValue::Kind::tensor)) {
    const GraphTensorPtr& x = of.tensor;
    if (name == "shape") return shape_value(x);
    if (name == "ndim") return GraphValue::of(x->rank());
    if (name == "T" && x->rank() <= 2)
      return x->rank() < 2 ? of : find_graph_operation("t", true)->run(GraphCall(call.tape(), *find_graph_operation("t", true), {of}, {}));
    if (name == "dtype")
      return {.kind = GraphValue::Kind::constant,
              .text = x->element == GraphElement::real      ? "float32"
                      : x->element == GraphElement::integer ? "int64"
                                                            : "bool"};
    if (name == "device") return {.kind = GraphValue::Kind::constant, .text = "cpu"};
    if (name == "requires_grad") return GraphValue::of(x->tracked);
    if (name == "data") return GraphValue::of(graph_detached(call.tape(), x));
  }
  fail(ErrorCode::invalid_argument,
       "the attribute '{}' of {}; allowed are shape, ndim, T, dtype, device, requires_grad, data of tensors, values and indices of max and min",
       name.substr(0, 64), graph_kind_name(of.kind));
}

// A slice over n places, as Python has it; torch takes steps above 0 alone.
std::vector<std::int64_t> sliced(GraphTape& tape, const GraphValue& slice, std::int64_t n) {
  const auto bound = [&](std::size_t i, std::int64_t standard) {
    const GraphValue& v = slice.items[i];
    if (v.is(GraphValue::Kind::none)) return standard;
    if (v.is(GraphValue::Kind::tensor) && v.tensor->size() == 1 && v.tensor->element == GraphElement::integer) return graph_whole(v.tensor->values[0]);
    if (!v.is_whole()) fail(ErrorCode::invalid_argument, "a slice has {}, allowed are integers", graph_kind_name(v.kind));
    return v.integer;
  };
  const std::int64_t step = bound(2, 1);
  if (step < 1) fail(ErrorCode::invalid_argument, "a slice steps by {}, allowed is 1 and up", step);
  const auto inside = [n](std::int64_t i) { return std::clamp<std::int64_t>(i < 0 ? (i < -n ? 0 : i + n) : i, 0, n); };
  const std::int64_t begin = inside(bound(0, 0)), end = inside(bound(1, n));
  tape.charge(std::max<std::int64_t>(0, end - begin));
  const std::int64_t by = std::min(step, n + 1);
  std::vector<std::int64_t> out;
  out.reserve(static_cast<std::size_t>((std::max<std::int64_t>(0, end - begin) + by - 1) / by));
  for (std::int64_t i = begin; i < end; i += by) {
    give_way_at(out.size());
    out.push_back(i);
  }
  return out;
}

std::int64_t inside(std::int64_t i, std::int64_t n) {
  if (i < -n || i >= n) fail(ErrorCode::invalid_argument, "the index {} of {} places", i, n);
  return i < 0 ? i + n : i;
}

// What one item of a key makes of the dimensions that it is about: their elements' offsets, and the shape these have.
struct Axis {
  GraphShape shape;
  std::vector<std::int64_t> offsets{0};
};

GraphTensorPtr index_tensor(GraphTape& tape, const GraphValue& item) {
  if (item.is(GraphValue::Kind::tensor)) return item.tensor;
  if (!item.is(GraphValue::Kind::list)) return nullptr;
  std::vector<double> values;
  GraphElement element = GraphElement::boolean;
  for (const GraphValue& one : item.items) {
    if (!one.is_whole()) fail(ErrorCode::invalid_argument, "an index list has {}, allowed are integers", graph_kind_name(one.kind));
    element = std::max(element, one.is(GraphValue::Kind::integer) ? GraphElement::integer : GraphElement::boolean);
    values.push_back(static_cast<double>(one.integer));
  }
  const auto count = static_cast<std::int64_t>(values.size());
  return tape.constant({count}, count == 0 ? GraphElement::integer : element, std::move(values));
}

GraphTensorPtr tensor_item(GraphTape& tape, const GraphTensorPtr& x, const GraphValue& key) {
  const std::vector<GraphValue> items = key.is(GraphValue::Kind::tuple) ? key.items : std::vector<GraphValue>{key};
  std::int64_t taken = 0;
  int tensors = 0;
  for (const GraphValue& item : items) {
    if (item.is(GraphValue::Kind::none) || item.is(GraphValue::Kind::ellipsis)) continue;
    const bool mask = item.is(GraphValue::Kind::tensor) && item.tensor->element == GraphElement::boolean;
    taken += mask ? item.tensor->rank() : 1;
    tensors += item.is(GraphValue::Kind::tensor) || item.is(GraphValue::Kind::list);
  }
  if (taken > x->rank()) fail(ErrorCode::invalid_argument, "{} indices of a tensor of shape {}", taken, graph_shape_text(x->shape));
  if (tensors > 1) fail(ErrorCode::invalid_argument, "{} tensors and lists in one index; allowed is one (gather takes more)", tensors);
  std::vector<std::int64_t> step(x->shape.size() + 1, 1);
  for (std::size_t i = x->shape.size(); i-- > 0;) step[i] = step[i + 1] * x->shape[i];
  std::vector<Axis> axes;
  std::size_t d = 0;
  const auto whole = [&] {
    tape.charge(x->shape[d]);
    Axis axis{{x->shape[d]}, {}};
    axis.offsets.reserve(static_cast<std::size_t>(x->shape[d]));
    for (std::int64_t i = 0; i < x->shape[d]; ++i) {
      give_way_at(static_cast<std::size_t>(i));
      axis.offsets.push_back(i * step[d + 1]);
    }
    axes.push_back(std::move(axis));
    ++d;
  };
  bool spread = false;
  for (const GraphValue& item : items) {
    if (item.is(GraphValue::Kind::none)) {
      axes.push_back({{1}, {0}});
    } else if (item.is(GraphValue::Kind::ellipsis)) {
      if (std::exchange(spread, true)) fail(ErrorCode::invalid_argument, "two ellipses in one index");
      for (std::int64_t i = taken; i < x->rank(); ++i) whole();
    } else if (item.is(GraphValue::Kind::integer)) {
      axes.push_back({{}, {inside(item.integer, x->shape[d]) * step[d + 1]}});
      ++d;
    } else if (item.is(GraphValue::Kind::slice)) {
      Axis axis{{}, sliced(tape, item, x->shape[d])};
      axis.shape = {static_cast<std::int64_t>(axis.offsets.size())};
      for (std::size_t i = 0; i < axis.offsets.size(); ++i) {
        give_way_at(i);
        axis.offsets[i] *= step[d + 1];
      }
      axes.push_back(std::move(axis));
      ++d;
    } else if (const GraphTensorPtr index = index_tensor(tape, item); index && index->element == GraphElement::boolean) {
      const auto rank = static_cast<std::size_t>(index->rank());
      if (d + rank > x->shape.size() || !std::equal(index->shape.begin(), index->shape.end(), x->shape.begin() + static_cast<std::ptrdiff_t>(d)))
        fail(ErrorCode::invalid_argument, "a mask of shape {} for a tensor of shape {}", graph_shape_text(index->shape), graph_shape_text(x->shape));
      Axis axis{{}, {}};
      std::int64_t chosen = 0;
      for (std::size_t i = 0; i < index->values.size(); ++i) {
        give_way_at(i);
        chosen += index->values[i] != 0;
      }
      tape.hold(chosen);
      axis.offsets.reserve(static_cast<std::size_t>(chosen));
      for (std::size_t i = 0; i < index->values.size(); ++i) {
        give_way_at(i);
        if (index->values[i] != 0) axis.offsets.push_back(static_cast<std::int64_t>(i) * step[d + rank]);
      }
      axis.shape = {static_cast<std::int64_t>(axis.offsets.size())};
      axes.push_back(std::move(axis));
      d += rank;
    } else if (index && index->element == GraphElement::integer) {
      Axis axis{index->shape, {}};
      tape.hold(index->size());
      axis.offsets.reserve(index->values.size());
      for (const double i : index->values) {
        give_way_at(axis.offsets.size());
        axis.offsets.push_back(inside(graph_whole(i), x->shape[d]) * step[d + 1]);
      }
      axes.push_back(std::move(axis));
      ++d;
    } else {
      fail(ErrorCode::invalid_argument, "the index has {}, allowed are integers, slices, None, an ellipsis, and one mask or tensor of integers",
           graph_kind_name(item.kind));
    }
  }
  while (d < x->shape.size()) whole();
  GraphShape shape;
  for (const Axis& axis : axes) shape.insert(shape.end(), axis.shape.begin(), axis.shape.end());
  const std::int64_t size = tape.charged_size(shape);
  if (size == 0) return tape.gathered({x}, std::move(shape), {});
  tape.hold(size);
  std::vector<std::int64_t> offsets{0};
  for (const Axis& axis : axes) {
    if (axis.offsets.size() == 1 && axis.offsets[0] == 0) continue;  // None, of which there may be thousands
    std::vector<std::int64_t> next;
    next.reserve(offsets.size() * axis.offsets.size());
    for (const std::int64_t a : offsets)
      for (const std::int64_t b : axis.offsets) {
        give_way_at(next.size());
        next.push_back(a + b);
      }
    offsets = std::move(next);
  }
  return tape.gathered({x}, std::move(shape), std::move(offsets));
}

void add_math(GraphOperationRows& rows, const char* name, double (*value)(double)) {
  rows.push_back({std::string("math.") + name, {"x"}, [value](const GraphCall& call) { return GraphValue::of(value(call.number(0))); }});
}

}  // namespace

GraphValue graph_item(const GraphCall& call, const GraphValue& of, const GraphValue& key) {
  if (of.is(GraphValue::Kind::tensor)) return GraphValue::of(tensor_item(call.tape(), of.tensor, key));
  if (of.is(GraphValue::Kind::dictionary) && key.is(GraphValue::Kind::text)) {
    const auto found = std::find(of.keys.begin(), of.keys.end(), key.text);
    if (found == of.keys.end()) fail(ErrorCode::invalid_argument, "the dict has no '{}'", key.text.substr(0, 64));
    return of.items[static_cast<std::size_t>(found - of.keys.begin())];
  }
  const auto count = static_cast<std::int64_t>(of.items.size());
  if ((of.is_sequence() || of.is(GraphValue::Kind::dictionary)) && key.is(GraphValue::Kind::integer))
    return of.items[static_cast<std::size_t>(inside(key.integer, count))];
  if (of.is_sequence() && key.is(GraphValue::Kind::slice)) {
    GraphValue part{.kind = of.kind};
    for (const std::int64_t i : sliced(call.tape(), key, count)) part.items.push_back(of.items[static_cast<std::size_t>(i)]);
    return part;
  }
  fail(ErrorCode::invalid_argument, "an item of {} by {}; allowed are items of tensors, tuples, lists and dicts", graph_kind_name(of.kind),
       graph_kind_name(key.kind));
}

void add_python_operations(GraphOperationRows& rows) {
  rows.push_back({"getattr", {"input", "name"}, attribute});
  rows.push_back({"getitem", {"input", "key"}, [](const GraphCall& call) {
                    call.tape().charge_copy(call.value(0));
                    return graph_item(call, call.value(0), call.value(1));
                  }});
  rows.push_back({"size", {"input", "dim"}, [](const GraphCall& call) {
                    const GraphTensorPtr x = call.proper_tensor(0);
                    if (!call.has(1)) return shape_value(x);
                    if (x->shape.empty()) call.refuse(0, "a tensor of at least one dimension");
                    return GraphValue::of(x->shape[static_cast<std::size_t>(graph_dimension(call.integer(1), x->rank()))]);
                  }});
  rows.push_back({"numel", {"input"}, [](const GraphCall& call) { return GraphValue::of(call.proper_tensor(0)->size()); }});
  rows.push_back({"dim", {"input"}, [](const GraphCall& call) { return GraphValue::of(call.proper_tensor(0)->rank()); }});
  add_math(rows, "sqrt", [](double x) { return std::sqrt(x); });
  add_math(rows, "exp", graph_math::exponential);
  add_math(rows, "log1p", graph_math::logarithm_of_1_plus);
  add_math(rows, "tanh", graph_math::hyperbolic_tangent);
  add_math(rows, "fabs", [](double x) { return std::fabs(x); });
  rows.push_back({"math.log", {"x", "base"}, [](const GraphCall& call) {
                    const double x = graph_math::logarithm(call.number(0));
                    return GraphValue::of(call.has(1) ? x / graph_math::logarithm(call.number(1)) : x);
                  }});
  rows.push_back({"math.pow", {"x", "y"}, [](const GraphCall& call) { return GraphValue::of(graph_math::power(call.number(0), call.number(1))); }});
  for (const bool up : {true, false})
    rows.push_back({up ? "math.ceil" : "math.floor", {"x"}, [up](const GraphCall& call) {
                      const double x = up ? std::ceil(call.number(0)) : std::floor(call.number(0));
                      return GraphValue::of(graph_whole(x));
                    }});
}

}  // namespace lockstep
