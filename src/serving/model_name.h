// The name of a model in a request: "v7" is the deployment v7, "v7#mine" an adapter of it. Fireworks writes the deployment behind the '#':
// "accounts/ann/models/v7#accounts/ann/deployments/v7". Pure.
//   const ModelName name = parse_model_name("v7#mine");  // deployment "v7", adapter "mine"
#pragma once
#include <string>

namespace lockstep {

struct ModelName {
  std::string deployment, adapter;  // adapter: empty where none is named
};
ModelName parse_model_name(const std::string& model);

}  // namespace lockstep
