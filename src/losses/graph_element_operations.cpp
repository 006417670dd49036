// Elementwise operations: arithmetic, comparisons, elementary functions, selection.
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/choice.h"
#include "base/error.h"
#include "losses/graph_math.h"
#include "losses/graph_operations.h"

namespace lockstep {
namespace {
using UnaryFunction = double (*)(double);
using UnarySlope = double (*)(double x, double y);

// Values that are real whatever x was.
void add_real(GraphOperationRows& rows, const char* name, UnaryFunction value, UnarySlope slope) {
  rows.push_back({name, {"input"}, [value, slope](const GraphCall& call) {
                    return GraphValue::of(call.tape().elementwise(
                        {call.tensor(0)}, GraphElement::real, [value](const double* x) { return value(x[0]); },
                        [slope](std::size_t, const double* x, double y) { return slope(x[0], y); }));
                  }});
}
// Values of x's own type; Python's numbers stay such.
void add_keeping(GraphOperationRows& rows, const char* name, UnaryFunction value, UnarySlope slope) {
  rows.push_back({name, {"input"}, [value, slope](const GraphCall& call) {
                    const GraphValue& v = call.value(0);
                    if (v.is_whole()) return GraphValue::of(graph_whole(value(static_cast<double>(v.integer))));
                    if (v.is_number()) return GraphValue::of(value(v.number()));
                    const GraphTensorPtr x = call.tensor(0);
                    return GraphValue::of(call.tape().elementwise(
                        {x}, std::max(x->element, GraphElement::integer), [value](const double* e) { return value(e[0]); },
                        [slope](std::size_t, const double* e, double y) { return slope(e[0], y); }));
                  }});
}
void add_predicate(GraphOperationRows& rows, const char* name, UnaryFunction value) {
  rows.push_back({name, {"input"}, [value](const GraphCall& call) {
                    return GraphValue::of(call.tape().elementwise(
                        {call.tensor(0)}, GraphElement::boolean, [value](const double* x) { return value(x[0]); }, nullptr));
                  }});
}

double sign_of(double x) { return std::isnan(x) ? x : static_cast<double>((x > 0) - (x < 0)); }
double nothing(double, double) { return 0; }

void add_functions(GraphOperationRows& rows) {
  add_real(rows, "exp", graph_math::exponential, [](double, double y) { return y; });
  add_real(rows, "expm1", graph_math::exponential_minus_1, [](double, double y) { return y + 1.0; });
  add_real(
      rows, "exp2", [](double x) { return graph_math::exponential(x * 0.69314718055994530942); }, [](double, double y) { return y * 0.69314718055994530942; });
  add_real(rows, "log", graph_math::logarithm, [](double x, double) { return 1.0 / x; });
  add_real(rows, "log1p", graph_math::logarithm_of_1_plus, [](double x, double) { return 1.0 / (x + 1.0); });
  add_real(
      rows, "log2", [](double x) { return graph_math::logarithm(x) / 0.69314718055994530942; },
      [](double x, double) { return 1.0 / (x * 0.69314718055994530942); });
  add_real(
      rows, "log10", [](double x) { return graph_math::logarithm(x) / 2.30258509299404568402; },
      [](double x, double) { return 1.0 / (x * 2.30258509299404568402); });
  add_real(
      rows, "sqrt", [](double x) { return std::sqrt(x); }, [](double, double y) { return 1.0 / (2.0 * y); });
  add_real(
      rows, "rsqrt", [](double x) { return 1.0 / std::sqrt(x); }, [](double, double y) { return -0.5 * (y * y * y); });
  add_real(
      rows, "reciprocal", [](double x) { return 1.0 / x; }, [](double, double y) { return -(y * y); });
  add_real(rows, "sigmoid", graph_math::sigmoid, [](double x, double y) { return y * graph_math::sigmoid(-x); });
  add_real(
      rows, "logsigmoid", [](double x) { return -graph_math::softplus(-x); }, [](double x, double) { return graph_math::sigmoid(-x); });
  add_real(rows, "tanh", graph_math::hyperbolic_tangent, [](double, double y) { return 1.0 - y * y; });
  add_real(
      rows, "silu", [](double x) { return x * graph_math::sigmoid(x); },
      [](double x, double) { return graph_math::sigmoid(x) * (1.0 + x * graph_math::sigmoid(-x)); });
  add_keeping(
      rows, "relu", [](double x) { return x > 0 || std::isnan(x) ? x : 0.0; }, [](double x, double) { return x > 0 ? 1.0 : 0.0; });
  add_keeping(
      rows, "relu6", [](double x) { return x > 6                    ? 6.0
                                           : x > 0 || std::isnan(x) ? x
                                                                    : 0.0; }, [](double x, double) { return x > 0 && x < 6 ? 1.0 : 0.0; });
  add_keeping(
      rows, "neg", [](double x) { return 0.0 - x; }, [](double, double) { return -1.0; });
  add_keeping(
      rows, "positive", [](double x) { return x; }, [](double, double) { return 1.0; });
  add_keeping(
      rows, "abs", [](double x) { return std::fabs(x); }, [](double x, double) { return sign_of(x); });
  add_keeping(
      rows, "square", [](double x) { return x * x; }, [](double x, double) { return 2.0 * x; });
  add_keeping(rows, "sign", sign_of, nothing);
  add_keeping(
      rows, "floor", [](double x) { return std::floor(x); }, nothing);
  add_keeping(
      rows, "ceil", [](double x) { return std::ceil(x); }, nothing);
  add_keeping(
      rows, "round", [](double x) { return std::nearbyint(x); }, nothing);
  add_keeping(
      rows, "trunc", [](double x) { return std::trunc(x); }, nothing);
  add_predicate(rows, "isnan", [](double x) { return std::isnan(x) ? 1.0 : 0.0; });
  add_predicate(rows, "isinf", [](double x) { return std::isinf(x) ? 1.0 : 0.0; });
  add_predicate(rows, "isfinite", [](double x) { return std::isfinite(x) ? 1.0 : 0.0; });
  add_predicate(rows, "logical_not", [](double x) { return x == 0 ? 1.0 : 0.0; });
  rows.push_back({"softplus", {"input", "beta", "threshold"}, [](const GraphCall& call) {
                    const double beta = call.number_or(1, 1.0), threshold = call.number_or(2, 20.0);
                    return GraphValue::of(call.tape().elementwise(
                        {call.tensor(0)}, GraphElement::real,
                        [=](const double* x) { return x[0] * beta > threshold ? x[0] : graph_math::softplus(x[0] * beta) / beta; },
                        [=](std::size_t, const double* x, double) { return x[0] * beta > threshold ? 1.0 : graph_math::sigmoid(x[0] * beta); }));
                  }});
  rows.push_back({"leaky_relu", {"input", "negative_slope"}, [](const GraphCall& call) {
                    const double below = call.number_or(1, 0.01);
                    return GraphValue::of(call.tape().elementwise(
                        {call.tensor(0)}, GraphElement::real, [=](const double* x) { return x[0] > 0 ? x[0] : x[0] * below; },
                        [=](std::size_t, const double* x, double) { return x[0] > 0 ? 1.0 : below; }));
                  }});
  rows.push_back({"nan_to_num", {"input", "nan", "posinf", "neginf"}, [](const GraphCall& call) {
                    const double nan = call.number_or(1, 0.0), high = call.number_or(2, 3.4028234663852886e38), low = call.number_or(3, -3.4028234663852886e38);
                    const GraphTensorPtr input = call.proper_tensor(0);
                    return GraphValue::of(call.tape().elementwise(
                        {input}, input->element, [=](const double* x) { return std::isnan(x[0])   ? nan
                                                                               : std::isinf(x[0]) ? (x[0] > 0 ? high : low)
                                                                                                  : x[0]; },
                        [](std::size_t, const double* x, double) { return std::isfinite(x[0]) ? 1.0 : 0.0; }));
                  }});
}

// --- two numbers

double floored_quotient(double x, double y) { return std::floor(x / y); }

GraphValue of_python_numbers(const std::string& op, const GraphValue& a, const GraphValue& b) {
  const double x = a.number(), y = b.number();
  if (op == "lt") return GraphValue::of(x < y);
  if (op == "le") return GraphValue::of(x <= y);
  if (op == "gt") return GraphValue::of(x > y);
  if (op == "ge") return GraphValue::of(x >= y);
  if (op == "eq") return GraphValue::of(x == y);
  if (op == "ne") return GraphValue::of(x != y);
  if (op == "maximum" || op == "minimum") return (x < y) == (op == "maximum") ? b : a;
  if ((op == "div" || op == "floor_divide" || op == "remainder") && y == 0) fail(ErrorCode::invalid_argument, "{} is divided by zero", x);
  if (op == "div") return GraphValue::of(x / y);
  if (!a.is_whole() || !b.is_whole()) {
    if (op == "add") return GraphValue::of(x + y);
    if (op == "sub") return GraphValue::of(x - y);
    if (op == "mul") return GraphValue::of(x * y);
    if (op == "pow") return GraphValue::of(graph_math::power(x, y));
    if (op == "floor_divide") return GraphValue::of(floored_quotient(x, y));
    if (op == "remainder") return GraphValue::of(x - y * floored_quotient(x, y));
    if (op == "xlogy") return GraphValue::of(x == 0 && !std::isnan(y) ? 0.0 : x * graph_math::logarithm(y));
    fail(ErrorCode::invalid_argument, "{} of {} and {}; allowed are integers", op, x, y);
  }
  const std::int64_t i = a.integer, j = b.integer;
  std::int64_t result = 0;
  bool over = false;
  if (op == "add") over = __builtin_add_overflow(i, j, &result);
  else if (op == "sub") over = __builtin_sub_overflow(i, j, &result);
  else if (op == "mul") over = __builtin_mul_overflow(i, j, &result);
  else if (op == "bitwise_and") result = i & j;
  else if (op == "bitwise_or") result = i | j;
  else if (op == "bitwise_xor") result = i ^ j;
  else if (op == "floor_divide" || op == "remainder") {
    over = j == -1 && i == std::numeric_limits<std::int64_t>::min();
    if (!over) {
      const std::int64_t quotient = i / j - (i % j != 0 && (i < 0) != (j < 0));
      result = op == "remainder" ? i - quotient * j : quotient;
    }
  } else if (op == "pow") {
    if (j < 0) return GraphValue::of(graph_math::power(x, y));
    result = 1;
    if (i == 0 || i == 1 || i == -1) result = j == 0 ? 1 : i == -1 && j % 2 == 0 ? 1 : i;
    else
      for (std::int64_t n = 0; n < j && !over; ++n) over = __builtin_mul_overflow(result, i, &result);
  } else {
    fail(ErrorCode::invalid_argument, "{} of two numbers; allowed are tensors", op);
  }
  if (over) fail(ErrorCode::invalid_argument, "{} of {} and {} is beyond 64 bits", op, i, j);
  return GraphValue::of(result);
}

struct BinaryRow {
  const char* name;
  double (*value)(double, double);
  double (*slope)(std::size_t, double x, double other, double y);  // null: none
  enum Type { mixed, real, boolean, whole } type;
};
constexpr BinaryRow kBinaryRows[] = {
    {"add", [](double x, double y) { return x + y; }, [](std::size_t, double, double, double) { return 1.0; }, BinaryRow::mixed},
    {"sub", [](double x, double y) { return x - y; }, [](std::size_t k, double, double, double) { return k == 0 ? 1.0 : -1.0; }, BinaryRow::mixed},
    {"mul", [](double x, double y) { return x * y; }, [](std::size_t k, double x, double y, double) { return k == 0 ? y : x; }, BinaryRow::mixed},
    {"div", [](double x, double y) { return x / y; }, [](std::size_t k, double, double y, double q) { return k == 0 ? 1.0 / y : -q / y; }, BinaryRow::real},
    {"floor_divide", floored_quotient, nullptr, BinaryRow::mixed},
    {"remainder", [](double x, double y) { return x - y * floored_quotient(x, y); },
     [](std::size_t k, double x, double y, double) { return k == 0 ? 1.0 : -floored_quotient(x, y); }, BinaryRow::mixed},
    {"pow", graph_math::power,
     [](std::size_t k, double x, double y, double p) {
       return k == 0 ? (y == 0 ? 0.0 : y * graph_math::power(x, y - 1.0)) : (x == 0 && y >= 0 ? 0.0 : p * graph_math::logarithm(x));
     },
     BinaryRow::mixed},
    {"xlogy", [](double x, double y) { return x == 0 && !std::isnan(y) ? 0.0 : x * graph_math::logarithm(y); },
     [](std::size_t k, double x, double y, double) { return k == 0 ? (x == 0 && y <= 0 ? 0.0 : graph_math::logarithm(y)) : x / y; }, BinaryRow::real},
    {"maximum", [](double x, double y) { return std::isnan(x) || x >= y ? x : y; },
     [](std::size_t k, double x, double y, double) { return x == y                ? 0.5
                                                            : (x > y) == (k == 0) ? 1.0
                                                                                  : 0.0; }, BinaryRow::mixed},
    {"minimum", [](double x, double y) { return std::isnan(x) || x <= y ? x : y; },
     [](std::size_t k, double x, double y, double) { return x == y                ? 0.5
                                                            : (x < y) == (k == 0) ? 1.0
                                                                                  : 0.0; }, BinaryRow::mixed},
    {"lt", [](double x, double y) { return x < y ? 1.0 : 0.0; }, nullptr, BinaryRow::boolean},
    {"le", [](double x, double y) { return x <= y ? 1.0 : 0.0; }, nullptr, BinaryRow::boolean},
    {"gt", [](double x, double y) { return x > y ? 1.0 : 0.0; }, nullptr, BinaryRow::boolean},
    {"ge", [](double x, double y) { return x >= y ? 1.0 : 0.0; }, nullptr, BinaryRow::boolean},
    {"eq", [](double x, double y) { return x == y ? 1.0 : 0.0; }, nullptr, BinaryRow::boolean},
    {"ne", [](double x, double y) { return x != y ? 1.0 : 0.0; }, nullptr, BinaryRow::boolean},
    {"logical_and", [](double x, double y) { return x != 0 && y != 0 ? 1.0 : 0.0; }, nullptr, BinaryRow::boolean},
    {"logical_or", [](double x, double y) { return x != 0 || y != 0 ? 1.0 : 0.0; }, nullptr, BinaryRow::boolean},
    {"logical_xor", [](double x, double y) { return (x != 0) != (y != 0) ? 1.0 : 0.0; }, nullptr, BinaryRow::boolean},
    {"bitwise_and", [](double x, double y) { return static_cast<double>(graph_whole(x) & graph_whole(y)); }, nullptr, BinaryRow::whole},
    {"bitwise_or", [](double x, double y) { return static_cast<double>(graph_whole(x) | graph_whole(y)); }, nullptr, BinaryRow::whole},
    {"bitwise_xor", [](double x, double y) { return static_cast<double>(graph_whole(x) ^ graph_whole(y)); }, nullptr, BinaryRow::whole},
};

GraphValue of_tensors(GraphTape& tape, const BinaryRow& row, const GraphTensorPtr& a, const GraphTensorPtr& b) {
  GraphElement element = std::max(a->element, b->element);
  if (row.type == BinaryRow::whole && element == GraphElement::real)
    fail(ErrorCode::invalid_argument, "{} of float tensors; allowed are integers and booleans", row.name);
  const bool of_truths = element == GraphElement::boolean;
  if (row.type == BinaryRow::real) element = GraphElement::real;
  if (row.type == BinaryRow::boolean) element = GraphElement::boolean;
  if (!row.slope && element == GraphElement::real && (a->tracked || b->tracked))
    fail(ErrorCode::invalid_argument, "{} of what depends on logprobs has no derivative; allowed is floor, of what is detached", row.name);
  const auto value = [&row, of_truths, element](const double* x) {
    const double y = row.value(x[0], x[1]);
    if (of_truths && element == GraphElement::boolean) return y != 0 ? 1.0 : 0.0;  // True + True is True
    if (element == GraphElement::integer && !(std::fabs(y) < 9.0e15))
      fail(ErrorCode::invalid_argument, "{} of the integers {} and {} is beyond what is exact", row.name, x[0], x[1]);
    return y;
  };
  GraphTape::Slope slope;
  if (row.slope) slope = [&row](std::size_t k, const double* x, double y) { return row.slope(k, x[0], x[1], y); };
  return GraphValue::of(tape.elementwise({a, b}, element, value, std::move(slope)));
}

void add_binary(GraphOperationRows& rows) {
  for (const BinaryRow& row : kBinaryRows) {
    const std::string name = row.name;
    if (name == "div") {
      rows.push_back({name, {"input", "other", "rounding_mode"}, [](const GraphCall& call) {
                        const std::string mode = call.text_or(2, "");
                        if (mode == "floor") return graph_arithmetic(call.tape(), "floor_divide", call.value(0), call.value(1));
                        if (!mode.empty()) fail(ErrorCode::invalid_argument, "rounding_mode is '{}', allowed are None and floor", mode);
                        return graph_arithmetic(call.tape(), "div", call.value(0), call.value(1));
                      }});
      continue;
    }
    if (name == "add" || name == "sub") {
      rows.push_back({name, {"input", "other", "alpha"}, [name](const GraphCall& call) {
                        const GraphValue other = call.has(2) ? graph_arithmetic(call.tape(), "mul", call.value(1), call.value(2)) : call.value(1);
                        return graph_arithmetic(call.tape(), name, call.value(0), other);
                      }});
      continue;
    }
    rows.push_back({name, {"input", name == "pow" ? "exponent" : "other"}, [name](const GraphCall& call) {
                      return graph_arithmetic(call.tape(), name, call.value(0), call.value(1));
                    }});
  }
  rows.push_back({"bitwise_not", {"input"}, [](const GraphCall& call) {
                    if (call.value(0).is_whole()) return GraphValue::of(~call.value(0).integer);
                    const GraphTensorPtr x = call.proper_tensor(0);
                    if (x->element == GraphElement::real) call.refuse(0, "a tensor of integers or booleans");
                    const bool truth = x->element == GraphElement::boolean;
                    return GraphValue::of(call.tape().elementwise(
                        {x}, x->element, [truth](const double* v) { return truth ? 1.0 - v[0] : -v[0] - 1.0; }, nullptr));
                  }});
}

// --- choices

GraphValue clamped(const GraphCall& call, std::size_t low, std::size_t high) {
  const bool below = low < call.operation().parameters.size() && call.has(low), above = high < call.operation().parameters.size() && call.has(high);
  if (!below && !above) fail(ErrorCode::invalid_argument, "it has neither min nor max");
  std::vector<GraphTensorPtr> inputs{call.tensor(0)};
  if (below) inputs.push_back(call.tensor(low));
  if (above) inputs.push_back(call.tensor(high));
  GraphElement element = GraphElement::boolean;
  for (const GraphTensorPtr& t : inputs) element = std::max(element, t->element);
  return GraphValue::of(call.tape().elementwise(
      inputs, element,
      [=](const double* v) {
        double y = v[0];
        if (below && y < v[1]) y = v[1];
        if (above && y > v[below ? 2 : 1]) y = v[below ? 2 : 1];
        return y;
      },
      [=](std::size_t k, const double* v, double) {
        const double x = v[0], least = below ? v[1] : -graph_math::kInfinity, most = above ? v[below ? 2 : 1] : graph_math::kInfinity;
        if (k == 0) return x >= least && x <= most ? 1.0 : 0.0;
        if (below && k == 1) return x < least && (!above || least < most) ? 1.0 : 0.0;
        return x > most || (below && most < least) ? 1.0 : 0.0;
      }));
}

GraphValue chosen(const GraphCall& call, const GraphTensorPtr& condition, const GraphTensorPtr& yes, const GraphTensorPtr& no, GraphElement element) {
  if (condition->element == GraphElement::real) fail(ErrorCode::invalid_argument, "the condition is a float tensor, allowed are booleans");
  return GraphValue::of(call.tape().elementwise(
      {condition, yes, no}, element, [](const double* v) { return v[0] != 0 ? v[1] : v[2]; },
      [](std::size_t k, const double* v, double) { return k > 0 && (v[0] != 0) == (k == 1) ? 1.0 : 0.0; }));
}

void add_choices(GraphOperationRows& rows) {
  rows.push_back({"clamp", {"input", "min", "max"}, [](const GraphCall& call) { return clamped(call, 1, 2); }});
  rows.push_back({"clamp_min", {"input", "min"}, [](const GraphCall& call) { return clamped(call, 1, 99); }});
  rows.push_back({"clamp_max", {"input", "max"}, [](const GraphCall& call) { return clamped(call, 99, 1); }});
  rows.push_back({"hardtanh", {"input", "min_val", "max_val"}, [](const GraphCall& call) {
                    const double low = call.number_or(1, -1.0), high = call.number_or(2, 1.0);
                    return GraphValue::of(call.tape().elementwise(
                        {call.tensor(0)}, GraphElement::real, [=](const double* v) { return v[0] < low    ? low
                                                                                            : v[0] > high ? high
                                                                                                          : v[0]; },
                        [=](std::size_t, const double* v, double) { return v[0] > low && v[0] < high ? 1.0 : 0.0; }));
                  }});
  const auto either = [](std::size_t condition, std::size_t yes) {
    return [=](const GraphCall& call) {
      const GraphTensorPtr a = call.tensor(yes), b = call.tensor(2);
      return chosen(call, call.proper_tensor(condition), a, b, std::max(a->element, b->element));
    };
  };
  rows.push_back({"where", {"condition", "input", "other"}, either(0, 1)});
  rows.push_back({"Tensor.where", {"input", "condition", "other"}, either(1, 0)});
  rows.push_back({"masked_fill", {"input", "mask", "value"}, [](const GraphCall& call) {
                    const GraphTensorPtr x = call.proper_tensor(0);
                    return chosen(call, call.proper_tensor(1), call.tensor(2), x, x->element);
                  }});
}

// --- losses of one tensor against another, as torch.nn.functional has them

GraphValue reduced(GraphTape& tape, const GraphTensorPtr& losses, const std::string& reduction) {
  if (reduction == "none") return GraphValue::of(losses);
  GraphTensorPtr sum = graph_sum(tape, losses, {}, false);
  if (reduction == "sum") return GraphValue::of(sum);
  if (reduction != "mean") fail_choice("reduction", reduction, {"none", "sum", "mean"});
  return graph_arithmetic(tape, "div", GraphValue::of(sum), GraphValue::of(losses->size()));
}

// value and derivative by the difference d = input - target
void add_distance(GraphOperationRows& rows, const char* name, const char* parameter, double (*value)(double d, double p), double (*slope)(double d, double p)) {
  rows.push_back({name, {"input", "target", "size_average", "reduce", "reduction", parameter, "weight"}, [=](const GraphCall& call) {
                    if (call.has(2) || call.has(3)) fail(ErrorCode::invalid_argument, "size_average and reduce are not allowed, reduction is");
                    if (call.has(6)) call.refuse(6, "None");
                    const double p = call.number_or(5, 1.0);
                    if (!(p > 0)) call.refuse(5, "a number above 0");
                    const GraphTensorPtr losses = call.tape().elementwise(
                        {call.proper_tensor(0), call.proper_tensor(1)}, GraphElement::real, [=](const double* v) { return value(v[0] - v[1], p); },
                        [=](std::size_t k, const double* v, double) { return k == 0 ? slope(v[0] - v[1], p) : -slope(v[0] - v[1], p); });
                    return reduced(call.tape(), losses, call.text_or(4, "mean"));
                  }});
}

void add_distances(GraphOperationRows& rows) {
  add_distance(
      rows, "mse_loss", "unused", [](double d, double) { return d * d; }, [](double d, double) { return 2.0 * d; });
  add_distance(
      rows, "l1_loss", "unused", [](double d, double) { return std::fabs(d); }, [](double d, double) { return sign_of(d); });
  add_distance(
      rows, "smooth_l1_loss", "beta", [](double d, double b) { return std::fabs(d) < b ? 0.5 * d * d / b : std::fabs(d) - 0.5 * b; },
      [](double d, double b) { return std::fabs(d) < b ? d / b : sign_of(d); });
  add_distance(
      rows, "huber_loss", "delta", [](double d, double b) { return std::fabs(d) <= b ? 0.5 * d * d : b * (std::fabs(d) - 0.5 * b); },
      [](double d, double b) { return std::fabs(d) <= b ? d : b * sign_of(d); });
}

}  // namespace

GraphValue graph_arithmetic(GraphTape& tape, const std::string& operation, const GraphValue& a, const GraphValue& b) {
  if (a.is_number() && b.is_number()) return of_python_numbers(operation, a, b);
  const GraphTensorPtr x = graph_tensor_of(tape, a), y = graph_tensor_of(tape, b);
  if (!x || !y) {
    if (operation == "add" && a.is_sequence() && b.is_sequence()) {  // (1,) + x.shape
      GraphValue joined = a;
      joined.items.insert(joined.items.end(), b.items.begin(), b.items.end());
      tape.charge(static_cast<std::int64_t>(joined.items.size()));
      return joined;
    }
    fail(ErrorCode::invalid_argument, "{} of {} and {}; allowed are tensors and numbers", operation, graph_kind_name(a.kind), graph_kind_name(b.kind));
  }
  const BinaryRow* row = std::find_if(std::begin(kBinaryRows), std::end(kBinaryRows), [&](const BinaryRow& r) { return operation == r.name; });
  return of_tensors(tape, *row, x, y);
}

void add_element_operations(GraphOperationRows& rows) {
  add_functions(rows);
  add_binary(rows);
  add_choices(rows);
  add_distances(rows);
}

}  // namespace lockstep
