#include <algorithm>

#include "train/optimizers/optimizer.h"

namespace lockstep {

OptimizerFamily dimuon();

const std::vector<OptimizerFamily>& optimizer_families() {
  static const std::vector<OptimizerFamily> all = {
      adamw(),
      dimuon(),
  };
  return all;
}

const OptimizerFamily* optimizer_named(std::string_view name) {
  const std::vector<OptimizerFamily>& all = optimizer_families();
  const auto found = std::find_if(all.begin(), all.end(), [&](const OptimizerFamily& family) { return family.name == name; });
  return found == all.end() ? nullptr : &*found;
}

}  // namespace lockstep
