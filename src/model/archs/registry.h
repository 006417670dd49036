// Which families there are. A family of ours is a file of this folder and a line of archs.h; what walks the families walks this list.
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
// For tests alone, before main: one more, so that what walks the families can be seen to need nothing else. Returns whether it was not there yet.
bool plant_family(Family family);

}  // namespace lockstep
