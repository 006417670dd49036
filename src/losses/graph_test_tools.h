// Generates traced losses from arbitrary bytes: nodes that call existing operations with arguments of every kind, mostly wrong ones. Tests only.
//   run_graph(graph_test_inputs(), GraphDraws(bytes).graph());  // a result, or a fault of the client's
#pragma once
#include <cmath>
#include <span>

#include "base/error.h"
#include "losses/custom_loss.h"
#include "losses/graph_operations.h"

namespace lockstep {

class GraphDraws {
 public:
  explicit GraphDraws(std::span<const std::uint8_t> bytes) : bytes_(bytes) {}
  bool done() const { return next_ >= bytes_.size(); }
  std::size_t below(std::size_t n) { return done() ? 0 : bytes_[next_++] % n; }

  nlohmann::ordered_json graph() {
    const std::vector<std::string> names = graph_operation_names();
    nlohmann::ordered_json nodes = nlohmann::ordered_json::array();
    for (const char* input : {"logprobs", "a", "mask"}) nodes.push_back({{"op", "placeholder"}, {"name", input}, {"target", input}});
    names_ = {"logprobs", "a", "mask"};
    while (!done() && names_.size() < 40) {
      if (below(2) == 1) {  // a call that is often right
        constexpr std::pair<const char*, int> kPlain[] = {{"exp", 1}, {"neg", 1},     {"mul", 2},   {"add", 2},
                                                          {"sub", 2}, {"minimum", 2}, {"clamp", 3}, {"where", 3}};
        const auto& [call, count] = kPlain[below(8)];
        nlohmann::ordered_json references = nlohmann::ordered_json::array();
        for (int i = 0; i < count; ++i) references.push_back(reference());
        const std::string name = "n" + std::to_string(names_.size());
        nodes.push_back({{"op", "call_function"},
                         {"name", name},
                         {"target", std::string("torch.") + call},
                         {"args", references},
                         {"kwargs", nlohmann::ordered_json::object()}});
        names_.push_back(name);
        continue;
      }
      std::string target = names[below(256) * names.size() / 256];
      const bool method = target != "getattr" && target != "getitem" && !target.starts_with("math.") && below(2) == 0;
      if (target == "getitem") target = "operator.getitem";
      else if (!method && target != "getattr" && !target.starts_with("math.")) target = "torch." + target;
      const std::string name = "n" + std::to_string(names_.size());
      nlohmann::ordered_json arguments = nlohmann::ordered_json::array(), named = nlohmann::ordered_json::object();
      for (std::size_t left = below(4); left + 1 > 0 && arguments.size() <= left;) arguments.push_back(arguments.empty() ? reference() : argument(0));
      if (target == "getattr") arguments = {reference(), text()};
      constexpr const char* kNamed[] = {"dim", "keepdim", "dtype", "min", "max", "reduction", "unbiased", "value"};
      if (below(8) == 0) named[kNamed[below(8)]] = argument(0);
      nodes.push_back({{"op", method ? "call_method" : "call_function"}, {"name", name}, {"target", target}, {"args", arguments}, {"kwargs", named}});
      names_.push_back(name);
    }
    nodes.push_back({{"op", "call_method"}, {"name", "end"}, {"target", "sum"}, {"args", {reference()}}});
    const nlohmann::ordered_json metric = below(4) == 3 ? reference() : nlohmann::ordered_json{{"ref", "end"}};
    nodes.push_back(
        {{"op", "output"}, {"name", "output"}, {"target", "output"}, {"args", {{{"tuple", {{{"ref", "end"}}, {{"dict", {{"custom/x:sum", metric}}}}}}}}}});
    return {{"format", 1}, {"nodes", nodes}};
  }

 private:
  nlohmann::ordered_json reference() { return {{"ref", names_[names_.size() - 1 - below(std::min<std::size_t>(names_.size(), 4))]}}; }
  nlohmann::ordered_json text() {
    constexpr const char* kTexts[] = {"shape", "T", "dtype", "values", "indices", "mean", "none", "data"};
    return kTexts[below(8)];
  }
  nlohmann::ordered_json argument(int depth) {
    constexpr double kNumbers[] = {0, 1, -1, 2, 0.5, -0.25, 1e300, 3};
    constexpr const char* kTypes[] = {"float32", "int64", "bool", "float64", "bfloat16", "cpu"};
    switch (below(depth > 3 ? 8 : 12)) {
      case 0:
        return static_cast<std::int64_t>(below(8)) - 3;
      case 1:
        return kNumbers[below(8)];
      case 2:
        return nullptr;
      case 3:
        return below(2) == 0;
      case 4:
        return text();
      case 5:
        return {{"dtype", kTypes[below(6)]}};
      case 6:
        return {{"float", below(2) ? "inf" : "nan"}};
      case 7:
        return {{"ellipsis", true}};
      case 8:
        return {{"slice", {argument(9), argument(9), argument(9)}}};
      case 9:
        return {{"tuple", list(depth)}};
      case 10:
        return list(depth);
      default:
        return reference();
    }
  }
  nlohmann::ordered_json list(int depth) {
    nlohmann::ordered_json items = nlohmann::ordered_json::array();
    for (std::size_t n = below(4); n > 0; --n) items.push_back(argument(depth + 1));
    return items;
  }

  std::span<const std::uint8_t> bytes_;
  std::size_t next_ = 0;
  std::vector<std::string> names_;
};

// Whether the graph gave a result: finite numbers then, of the right count. Error of any other kind than the client's: false logic,
// and thrown on.
inline bool run_graph(const nlohmann::ordered_json& inputs, const nlohmann::ordered_json& graph) {
  try {
    const CustomLoss loss("made", inputs, graph);
    // Of each input four numbers: masks are integers.
    std::map<std::string, NamedTensor> tensors;
    std::vector<std::int64_t> shape{4};
    for (const auto& input : inputs) {
      NamedTensor tensor;
      const auto rank = input["rank"].get<std::int64_t>();
      const auto name = input["name"].get<std::string>();
      tensor.shape = rank == 2 ? std::vector<std::int64_t>{2, 2} : std::vector<std::int64_t>{rank == 1 ? 4 : 1};
      tensor.is_float = !name.starts_with("mask");
      tensor.floats = {0.5f, -1.0f, 2.0f, 0.0f};
      tensor.integers = {1, 0, 1, 2};
      if (rank == 0) tensor.floats.resize(1), tensor.integers.resize(1);
      if (name == "logprobs") shape = tensor.shape;
      tensors[name] = std::move(tensor);
    }
    const CustomLoss::Result result = loss.run({-0.5f, -1.5f, -3.0f, -0.25f}, shape, tensors);
    if (result.gradient.size() != 4 || !std::isfinite(result.loss)) fail(ErrorCode::internal, "a result that is none");
    for (const float g : result.gradient)
      if (!std::isfinite(g)) fail(ErrorCode::internal, "a gradient that is none");
    return true;
  } catch (const Error& e) {
    if (e.code() != ErrorCode::invalid_argument && e.code() != ErrorCode::unsupported) throw;
    return false;
  }
}
inline nlohmann::ordered_json graph_test_inputs() {
  return nlohmann::ordered_json::array({{{"name", "logprobs"}, {"rank", 1}}, {{"name", "a"}, {"rank", 1}}, {{"name", "mask"}, {"rank", 1}}});
}

}  // namespace lockstep
