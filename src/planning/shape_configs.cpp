#include "planning/shape_configs.h"

#include "base/error.h"
#include "model/model.h"

namespace lockstep {

Json shape_config(const std::string& name) {
  std::vector<std::string> names;
  for (const ShapeConfig& config : shape_configs()) {
    if (config.name == name) return Json::parse(config.json);
    names.emplace_back(config.name);
  }
  fail(ErrorCode::not_found, "there is no config '{}', only {}{}", name.substr(0, 100), fmt::join(names, ", "), did_you_mean(name, names));
}

std::map<std::string, ConfigKeyUse> config_keys_of(const std::string& model_type) {
  std::map<std::string, ConfigKeyUse> keys;
  for (const ShapeConfig& row : shape_configs()) {
    Json config = Json::parse(row.json);
    if (config["model_type"] != model_type) continue;
    const ConfigKeyLog log;
    make_model(config);
    config.erase("rope_parameters");  // older files say it outside
    make_model(config);
    for (const auto& [key, use] : log.keys()) {
      keys[key].read = keys[key].read || use.read;
      if (!use.allowed.empty()) keys[key].allowed = use.allowed;
    }
  }
  return keys;
}

}  // namespace lockstep
