// Lets tests in Python run traced losses: JSON lines in, JSON lines out. Built with the tests (src/losses/folder.cmake).
//   custom_loss_bridge < requests
// {"inputs": [...], "graph": {...}, "shape": [...], "logprobs": [...], "tensors": {NAME: {"shape": [...], "dtype": "float32", "data": [...]}}}
//   -> {"loss": x, "gradient": [...], "metrics": {NAME: x}} or {"error": message, "code": name}
#include <iostream>

#include "base/error.h"
#include "losses/custom_loss.h"

using lockstep::CustomLoss;
using nlohmann::ordered_json;

namespace {
ordered_json answer(const ordered_json& request) {
  const CustomLoss loss("loss", request.at("inputs"), request.at("graph"));
  std::map<std::string, lockstep::NamedTensor> tensors;
  for (const auto& [name, json] : request.at("tensors").items()) {
    lockstep::NamedTensor tensor;
    tensor.shape = json.at("shape").get<std::vector<std::int64_t>>();
    tensor.is_float = json.at("dtype") == "float32";
    if (tensor.is_float) tensor.floats = json.at("data").get<std::vector<float>>();
    else tensor.integers = json.at("data").get<std::vector<std::int64_t>>();
    if (tensor.shape.empty()) tensor.shape = {static_cast<std::int64_t>(tensor.size())};
    tensors[name] = std::move(tensor);
  }
  const CustomLoss::Result result = loss.run(request.at("logprobs").get<std::vector<float>>(), request.at("shape").get<std::vector<std::int64_t>>(), tensors);
  ordered_json metrics = ordered_json::object();
  const std::vector<std::string> names = loss.metric_names();
  for (std::size_t m = 0; m < names.size(); ++m) metrics[names[m]] = result.metrics[m];
  return {{"loss", result.loss}, {"gradient", result.gradient}, {"metrics", metrics}};
}
}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    ordered_json out;
    try {
      out = answer(ordered_json::parse(line));
    } catch (const lockstep::Error& e) {
      out = {{"error", e.message()}, {"code", std::string(lockstep::error_code_name(e.code()))}};
    }
    std::cout << out.dump() << std::endl;
  }
}
