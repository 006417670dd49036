#include "serving/model_name.h"

#include <string_view>

namespace lockstep {
namespace {
constexpr std::string_view kFireworksDeployments = "deployments/";
}  // namespace

ModelName parse_model_name(const std::string& model) {
  const std::size_t hash = model.find('#');
  if (hash == std::string::npos) return {model, {}};
  const std::string left = model.substr(0, hash), right = model.substr(hash + 1);
  const std::size_t at = right.rfind(kFireworksDeployments);
  if (at != std::string::npos && (at == 0 || right[at - 1] == '/')) return {right.substr(at + kFireworksDeployments.size()), {}};
  return {left, right};
}

}  // namespace lockstep
