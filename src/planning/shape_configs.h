// The config.json files of large models in shapes/configs, compiled into the program.
//   const Json config = shape_config("deepseek-v3");
#pragma once
#include <span>
#include <string>
#include <string_view>

#include "model/config_key_log.h"

namespace lockstep {

struct ShapeConfig {
  std::string_view name, json;  // the file's name without .json, and its text
};

std::span<const ShapeConfig> shape_configs();
// Error not_found with the nearest name.
Json shape_config(const std::string& name);

// The keys of config.json that a family reads, and those of which it allows only certain values: recorded while the models of its configs here are
// made. Empty for a family without a config here.
std::map<std::string, ConfigKeyUse> config_keys_of(const std::string& model_type);

}  // namespace lockstep
