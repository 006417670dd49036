// Apart from what computes them (batch_losses.cpp): who reads requests needs their names alone.
#include <algorithm>

#include "host/batch_loss.h"
#include "losses/preference_losses.h"

namespace lockstep {

std::vector<std::string> batch_loss_names() {
  std::vector<std::string> names;
  for (const PreferenceRow& row : preference_rows())
    if (row.pairs && !row.values) names.emplace_back(row.name);
  names.emplace_back(kDistillLoss);
  return names;
}

bool is_batch_loss(const std::string& name) {
  const std::vector<std::string> names = batch_loss_names();
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace lockstep
