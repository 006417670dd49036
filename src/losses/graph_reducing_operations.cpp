// Reductions along dimensions: sums, means, extremes, softmax.
#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "base/give_way.h"
#include "losses/graph_math.h"
#include "losses/graph_operations.h"

namespace lockstep {
namespace {

// Which element of the result each element of x goes to.
struct Reduction {
  GraphShape kept, shape;  // with the reduced dimensions as 1; as the caller wants it
  std::vector<std::int64_t> index;
  std::int64_t each = 1;  // elements of x a result
};

Reduction reduction(GraphTape& tape, const GraphTensorPtr& x, const std::vector<std::int64_t>& dimensions, bool keep) {
  Reduction r;
  std::vector<bool> reduced(x->shape.size(), dimensions.empty());
  for (const std::int64_t d : dimensions) {
    const auto at = static_cast<std::size_t>(graph_dimension(d, x->rank()));
    if (x->shape.empty()) continue;
    if (reduced[at]) fail(ErrorCode::invalid_argument, "dimension {} comes twice", d);
    reduced[at] = true;
  }
  r.kept = x->shape;
  for (std::size_t i = 0; i < r.kept.size(); ++i) {
    if (reduced[i]) r.each *= std::exchange(r.kept[i], 1);
    if (!reduced[i] || keep) r.shape.push_back(r.kept[i]);
  }
  tape.charge(x->size());
  r.index = broadcast_index(r.kept, x->shape);
  return r;
}

std::vector<std::int64_t> dimensions_of(const GraphCall& call, std::size_t i) { return call.has(i) ? call.integers(i) : std::vector<std::int64_t>(); }

GraphValue by(GraphTape& tape, const char* operation, const GraphTensorPtr& a, const GraphTensorPtr& b) {
  return graph_arithmetic(tape, operation, GraphValue::of(a), GraphValue::of(b));
}

GraphTensorPtr cast_by(const GraphCall& call, const GraphTensorPtr& x, std::size_t dtype) {
  if (!call.has(dtype)) return x;
  if (!call.value(dtype).is(GraphValue::Kind::constant)) call.refuse(dtype, "a dtype");
  return graph_cast(call.tape(), x, graph_dtype(call.value(dtype).text));
}

GraphTensorPtr mean_of(GraphTape& tape, const GraphTensorPtr& x, const std::vector<std::int64_t>& dimensions, bool keep) {
  Reduction r = reduction(tape, x, dimensions, keep);
  const double n = static_cast<double>(r.each);
  return tape.elementwise(
      {tape.summed(x, std::move(r.shape), std::move(r.index))}, GraphElement::real, [n](const double* v) { return v[0] / n; },
      [n](std::size_t, const double*, double) { return 1.0 / n; });
}

// The greatest (sign 1) or least (-1) of each; several that are equal share the gradient.
GraphTensorPtr extreme(GraphTape& tape, const GraphTensorPtr& x, const std::vector<std::int64_t>& dimensions, bool keep, double sign) {
  Reduction r = reduction(tape, x, dimensions, keep);
  const auto count = static_cast<std::size_t>(graph_size(r.shape));
  if (r.each == 0 && count > 0) fail(ErrorCode::invalid_argument, "the greatest or least of no elements (shape {})", graph_shape_text(x->shape));
  tape.charge(2 * static_cast<std::int64_t>(count));
  tape.hold(static_cast<std::int64_t>(count));
  std::vector<double> values = filled_in_parts(count, -sign * graph_math::kInfinity), equal = filled_in_parts(count, 0.0);
  for (std::size_t i = 0; i < x->values.size(); ++i) {
    give_way_at(i);
    double& best = values[static_cast<std::size_t>(r.index[i])];
    const double v = x->values[i];
    if (std::isnan(v) || sign * v > sign * best) best = v;
  }
  for (std::size_t i = 0; i < x->values.size(); ++i) {
    give_way_at(i);
    equal[static_cast<std::size_t>(r.index[i])] += x->values[i] == values[static_cast<std::size_t>(r.index[i])];
  }
  std::vector<double> best = copied_in_parts(values);
  return tape.made_of(
      x, std::move(r.shape), std::move(values),
      [from = x.get(), index = std::move(r.index), best = std::move(best), equal = std::move(equal)](const std::vector<double>& dy, std::vector<double>& dx) {
        for (std::size_t i = 0; i < dx.size(); ++i) {
          give_way_at(i);
          const auto o = static_cast<std::size_t>(index[i]);
          if (from->values[i] == best[o]) dx[i] += dy[o] / equal[o];
        }
      });
}

// The first of the greatest or least along one dimension: its value and its place.
GraphValue extreme_along(const GraphCall& call, double sign) {
  GraphTape& tape = call.tape();
  const GraphTensorPtr x = call.proper_tensor(0);
  const std::int64_t d = graph_dimension(call.integer(1), x->rank());
  const Reduction r = reduction(tape, x, {d}, call.boolean_or(2, false));
  if (r.each == 0) fail(ErrorCode::invalid_argument, "the greatest or least of no elements (shape {})", graph_shape_text(x->shape));
  const auto count = static_cast<std::size_t>(graph_size(r.shape));
  tape.charge(2 * static_cast<std::int64_t>(count));
  tape.hold(static_cast<std::int64_t>(count));
  std::vector<std::int64_t> from = filled_in_parts(count, std::int64_t{-1});
  std::vector<double> place = filled_in_parts(count, 0.0), seen = filled_in_parts(count, 0.0);
  for (std::size_t i = 0; i < x->values.size(); ++i) {
    give_way_at(i);
    const auto o = static_cast<std::size_t>(r.index[i]);
    const double v = x->values[i];
    if (from[o] < 0 ||
        (!std::isnan(x->values[static_cast<std::size_t>(from[o])]) && (std::isnan(v) || sign * v > sign * x->values[static_cast<std::size_t>(from[o])])))
      from[o] = static_cast<std::int64_t>(i), place[o] = seen[o];
    ++seen[o];
  }
  GraphValue both{.kind = GraphValue::Kind::dictionary};
  both.keys = {"values", "indices"};
  both.items = {GraphValue::of(tape.gathered({x}, r.shape, std::move(from))), GraphValue::of(tape.constant(r.shape, GraphElement::integer, std::move(place)))};
  return both;
}

GraphValue maximum_or_minimum(const GraphCall& call, double sign) {
  if (!call.has(1)) return GraphValue::of(extreme(call.tape(), call.proper_tensor(0), {}, false, sign));
  if (call.value(1).is(GraphValue::Kind::tensor)) return graph_arithmetic(call.tape(), sign > 0 ? "maximum" : "minimum", call.value(0), call.value(1));
  return extreme_along(call, sign);
}

GraphTensorPtr argument_of_extreme(const GraphCall& call, double sign) {
  GraphTape& tape = call.tape();
  const GraphTensorPtr x = call.proper_tensor(0);
  if (call.has(1)) return extreme_along(call, sign).items[1].tensor;
  if (x->values.empty()) fail(ErrorCode::invalid_argument, "the place of the greatest or least of no elements");
  tape.charge_work(x->size());
  std::size_t best = 0;  // the first of the greatest or least
  for (std::size_t i = 1; i < x->values.size(); ++i) {
    give_way_at(i);
    if (sign > 0 ? x->values[best] < x->values[i] : x->values[i] < x->values[best]) best = i;
  }
  return tape.scalar(static_cast<double>(best), GraphElement::integer);
}

// x - m, and sum exp(x - m) along the dimension(s); m greatest, without gradient, 0 where it is not finite.
struct ShiftedSum {
  GraphTensorPtr shift, shifted, exponentials, sum;
};
ShiftedSum shifted_sum(GraphTape& tape, const GraphTensorPtr& x, const std::vector<std::int64_t>& dimensions) {
  ShiftedSum out;
  const GraphTensorPtr greatest = extreme(tape, graph_detached(tape, x), dimensions, true, 1);
  out.shift = tape.elementwise(
      {greatest}, GraphElement::real, [](const double* v) { return std::isfinite(v[0]) ? v[0] : 0.0; }, nullptr);
  out.shifted = by(tape, "sub", x, out.shift).tensor;
  out.exponentials = tape.elementwise(
      {out.shifted}, GraphElement::real, [](const double* v) { return graph_math::exponential(v[0]); }, [](std::size_t, const double*, double y) { return y; });
  out.sum = graph_sum(tape, out.exponentials, dimensions, true);
  return out;
}
GraphTensorPtr logarithms(GraphTape& tape, const GraphTensorPtr& x) {
  return tape.elementwise(
      {x}, GraphElement::real, [](const double* v) { return graph_math::logarithm(v[0]); }, [](std::size_t, const double* v, double) { return 1.0 / v[0]; });
}

GraphValue deviation(const GraphCall& call, bool root) {
  GraphTape& tape = call.tape();
  const GraphTensorPtr x = call.proper_tensor(0);
  const bool first_is_unbiased = call.has(1) && call.value(1).is(GraphValue::Kind::boolean);
  const std::vector<std::int64_t> dimensions = first_is_unbiased ? std::vector<std::int64_t>() : dimensions_of(call, 1);
  const bool unbiased = first_is_unbiased ? call.boolean_or(1, true) : call.boolean_or(2, true);
  const double correction = call.number_or(4, unbiased ? 1.0 : 0.0);
  const GraphTensorPtr distance = by(tape, "sub", x, mean_of(tape, x, dimensions, true)).tensor;
  Reduction r = reduction(tape, x, dimensions, call.boolean_or(3, false));
  const double n = std::max(0.0, static_cast<double>(r.each) - correction);
  const GraphTensorPtr sum = tape.summed(by(tape, "mul", distance, distance).tensor, std::move(r.shape), std::move(r.index));
  return GraphValue::of(tape.elementwise(
      {sum}, GraphElement::real, [=](const double* v) { return root ? std::sqrt(v[0] / n) : v[0] / n; },
      [=](std::size_t, const double*, double y) { return root ? (y == 0 ? 0.0 : 0.5 / (y * n)) : 1.0 / n; }));
}

GraphValue cumulated(const GraphCall& call) {
  GraphTape& tape = call.tape();
  const GraphTensorPtr x = cast_by(call, call.proper_tensor(0), 2);
  const auto d = static_cast<std::size_t>(graph_dimension(call.integer(1), x->rank()));
  if (x->shape.empty()) return GraphValue::of(x);
  std::size_t step = 1;
  for (std::size_t i = d + 1; i < x->shape.size(); ++i) step *= static_cast<std::size_t>(x->shape[i]);
  const auto length = static_cast<std::size_t>(x->shape[d]);
  tape.charge(x->size());
  std::vector<double> values = copied_in_parts(x->values);
  for (std::size_t i = 0; i < values.size(); ++i) {
    give_way_at(i);
    if (i / step % length != 0) values[i] += values[i - step];
  }
  return GraphValue::of(tape.made_of(x, x->shape, std::move(values), [step, length](const std::vector<double>& dy, std::vector<double>& dx) {
    std::vector<double> behind = copied_in_parts(dy);
    for (std::size_t i = behind.size(); i-- > 0;) {
      give_way_at(i);
      if (i / step % length + 1 < length) behind[i] += behind[i + step];
    }
    for (std::size_t i = 0; i < dx.size(); ++i) {
      give_way_at(i);
      dx[i] += behind[i];
    }
  }));
}

GraphValue truth(const GraphCall& call, bool all) {
  GraphTape& tape = call.tape();
  const GraphTensorPtr x = call.proper_tensor(0);
  const Reduction r = reduction(tape, x, dimensions_of(call, 1), call.boolean_or(2, false));
  tape.hold(graph_size(r.shape));
  std::vector<double> values = filled_in_parts(static_cast<std::size_t>(graph_size(r.shape)), all ? 1.0 : 0.0);
  for (std::size_t i = 0; i < x->values.size(); ++i) {
    give_way_at(i);
    if ((x->values[i] != 0) != all) values[static_cast<std::size_t>(r.index[i])] = all ? 0.0 : 1.0;
  }
  return GraphValue::of(tape.constant(r.shape, GraphElement::boolean, std::move(values)));
}

}  // namespace

GraphTensorPtr graph_sum(GraphTape& tape, const GraphTensorPtr& x, const std::vector<std::int64_t>& dimensions, bool keep) {
  Reduction r = reduction(tape, x, dimensions, keep);
  return tape.summed(x, std::move(r.shape), std::move(r.index));
}

void add_reducing_operations(GraphOperationRows& rows) {
  rows.push_back({"sum", {"input", "dim", "keepdim", "dtype"}, [](const GraphCall& call) {
                    return GraphValue::of(graph_sum(call.tape(), cast_by(call, call.proper_tensor(0), 3), dimensions_of(call, 1), call.boolean_or(2, false)));
                  }});
  rows.push_back({"mean", {"input", "dim", "keepdim", "dtype"}, [](const GraphCall& call) {
                    return GraphValue::of(mean_of(call.tape(), cast_by(call, call.proper_tensor(0), 3), dimensions_of(call, 1), call.boolean_or(2, false)));
                  }});
  for (const bool greatest : {true, false}) {
    const double sign = greatest ? 1.0 : -1.0;
    rows.push_back({greatest ? "amax" : "amin", {"input", "dim", "keepdim"}, [sign](const GraphCall& call) {
                      return GraphValue::of(extreme(call.tape(), call.proper_tensor(0), dimensions_of(call, 1), call.boolean_or(2, false), sign));
                    }});
    rows.push_back({greatest ? "max" : "min", {"input", "dim", "keepdim"}, [sign](const GraphCall& call) { return maximum_or_minimum(call, sign); }});
    rows.push_back({greatest ? "argmax" : "argmin", {"input", "dim", "keepdim"}, [sign](const GraphCall& call) {
                      return GraphValue::of(argument_of_extreme(call, sign));
                    }});
    rows.push_back({greatest ? "all" : "any", {"input", "dim", "keepdim"}, [greatest](const GraphCall& call) { return truth(call, greatest); }});
    rows.push_back({greatest ? "std" : "var", {"input", "dim", "unbiased", "keepdim", "correction"}, [greatest](const GraphCall& call) {
                      return deviation(call, greatest);
                    }});
  }
  rows.push_back({"cumsum", {"input", "dim", "dtype"}, cumulated});
  rows.push_back({"logsumexp", {"input", "dim", "keepdim"}, [](const GraphCall& call) {
                    GraphTape& tape = call.tape();
                    const GraphTensorPtr x = call.proper_tensor(0);
                    const ShiftedSum s = shifted_sum(tape, x, call.integers(1));
                    const GraphTensorPtr kept = by(tape, "add", logarithms(tape, s.sum), s.shift).tensor;
                    return GraphValue::of(graph_reshaped(tape, kept, reduction(tape, x, call.integers(1), call.boolean_or(2, false)).shape));
                  }});
  rows.push_back({"softmax", {"input", "dim", "dtype"}, [](const GraphCall& call) {
                    const ShiftedSum s = shifted_sum(call.tape(), cast_by(call, call.proper_tensor(0), 2), call.integers(1));
                    return by(call.tape(), "div", s.exponentials, s.sum);
                  }});
  rows.push_back({"log_softmax", {"input", "dim", "dtype"}, [](const GraphCall& call) {
                    const ShiftedSum s = shifted_sum(call.tape(), cast_by(call, call.proper_tensor(0), 2), call.integers(1));
                    return by(call.tape(), "sub", s.shifted, logarithms(call.tape(), s.sum));
                  }});
}

}  // namespace lockstep
