// Values of a traced loss: tensors, and Python values beside them. Tensor elements are doubles, whatever
// float type the client named; integers are exact to 2^53. Plain values.
//   GraphTensor tensor{.shape = {2, 3}, .values = {1, 2, 3, 4, 5, 6}}; tensor.size() == 6;
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace lockstep {

using GraphShape = std::vector<std::int64_t>;
// The type of a tensor's elements; of two types mixed, the result is the greater.
enum class GraphElement : std::uint8_t { boolean, integer, real };

struct GraphTensor {
  GraphShape shape;
  GraphElement element = GraphElement::real;
  std::vector<double> values;      // row-major
  bool tracked = false;            // it depends on the log-probabilities, differentiably
  std::vector<double> gradient;    // empty: no gradient yet
  std::function<void()> backward;  // propagates the gradient to its inputs

  std::int64_t rank() const { return static_cast<std::int64_t>(shape.size()); }
  std::int64_t size() const { return static_cast<std::int64_t>(values.size()); }
};
using GraphTensorPtr = std::shared_ptr<GraphTensor>;

struct GraphValue {
  // slice: three items; constant: a dtype, a device and the like, by its name; reference: to an earlier node.
  enum class Kind : std::uint8_t { none, boolean, integer, real, text, tensor, tuple, list, dictionary, slice, ellipsis, constant, reference };
  Kind kind = Kind::none;
  std::int64_t integer = 0;  // a boolean too; of a reference the node's number
  double real = 0;
  std::string text = {};
  GraphTensorPtr tensor = nullptr;
  std::vector<GraphValue> items = {};
  std::vector<std::string> keys = {};  // of a dictionary's items

  bool is(Kind k) const { return kind == k; }
  bool is_number() const { return kind == Kind::boolean || kind == Kind::integer || kind == Kind::real; }
  bool is_whole() const { return kind == Kind::boolean || kind == Kind::integer; }
  // It and all that it holds: what a copy makes, up to `most`.
  std::int64_t count(std::int64_t most) const {
    std::int64_t n = 1;
    for (const GraphValue& item : items)
      if (n += item.count(most - n); n > most) break;
    return n;
  }
  bool is_sequence() const { return kind == Kind::tuple || kind == Kind::list; }
  double number() const { return kind == Kind::real ? real : static_cast<double>(integer); }

  static GraphValue of(bool value) { return {.kind = Kind::boolean, .integer = value}; }
  static GraphValue of(std::int64_t value) { return {.kind = Kind::integer, .integer = value}; }
  static GraphValue of(double value) { return {.kind = Kind::real, .real = value}; }
  static GraphValue of(GraphTensorPtr value) { return {.kind = Kind::tensor, .tensor = std::move(value)}; }
  static GraphValue of(std::vector<GraphValue> values) { return {.kind = Kind::tuple, .items = std::move(values)}; }
};
const char* graph_kind_name(GraphValue::Kind kind);  // "an integer"

}  // namespace lockstep
