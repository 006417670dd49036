// Apart from what computes them (batch_losses.cpp): who reads requests needs their names alone.
#include <algorithm>

#include "base/choice.h"
#include "base/error.h"
#include "host/batch_loss.h"
#include "losses/preference_losses.h"
#include "train/value_loss.h"

namespace lockstep {

std::vector<std::string> batch_loss_names() {
  std::vector<std::string> names;
  for (const PreferenceRow& row : preference_rows())
    if (!row.values) names.emplace_back(row.name);
  names.emplace_back(kDistillLoss);
  return names;
}

bool is_batch_loss(const std::string& name) {
  const std::vector<std::string> names = batch_loss_names();
  return name == kPairwiseRewardLoss || std::find(names.begin(), names.end(), name) != names.end();
}

void refuse_loss(const std::string& name, bool critic) {
  if (critic) {
    const std::vector<std::string> names{std::string(kValueLossName), kPairwiseRewardLoss};
    fail(ErrorCode::unsupported, "the loss is '{}', and the model is a critic, whose rows have values and no log-probabilities; {}", name,
         allowed_are(name, names));
  }
  std::vector<std::string> names = loss_names();
  for (const std::string& one : batch_loss_names()) names.push_back(one);
  if (name == kValueLossName || name == kPairwiseRewardLoss)
    fail(ErrorCode::unsupported, "the loss is '{}', and the model has no value head; allowed are {}, and '{}' where base_model is NAME:value, a critic", name,
         fmt::join(names, ", "), name);
  fail_choice("the loss", name, names);
}

}  // namespace lockstep
