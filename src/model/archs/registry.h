// The registry of model families. A family is a file of this folder and a line of archs.h; tests that cover all families iterate over this list.
//   for (const Family& family : families()) names.push_back(family.model_type);
#pragma once
#include <span>

#include "model/model.h"

namespace lockstep {

struct Family {
  std::string model_type;  // of config.json
  std::unique_ptr<Model> (*make)(const Json& config, const ModelOptions& options);
};

std::span<const Family> families();
// For tests only, before main: registers one more family, to show that a file and a line are enough. Returns whether it was new.
bool plant_family(Family family);

}  // namespace lockstep
