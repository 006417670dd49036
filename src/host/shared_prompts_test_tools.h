// Data with equal prompts, for tests of the option share_prompts. Tests only.
#pragma once
#include <algorithm>
#include <string>
#include <vector>

#include "host/training_test_tools.h"

namespace lockstep {

// Answers of 5 tokens to these prompts of 8, each of which has a number.
inline TrainingBatch answers(const std::vector<std::int32_t>& prompts, const std::string& share = {}) {
  TrainingBatch batch;
  batch.loss.name = "cross_entropy";
  if (!share.empty()) batch.loss.config["share_prompts"] = share;
  std::int32_t own = 0;
  for (const std::int32_t prompt : prompts) {
    std::vector<std::int32_t> text;
    for (std::int32_t i = 0; i < 8; ++i) text.push_back((7 * prompt + i) % 64);
    for (std::int32_t i = 0; i < 5; ++i) text.push_back((11 * ++own + i) % 64);
    TrainingDatum datum;
    datum.tokens.assign(text.begin(), text.end() - 1);
    NamedTensor targets, weights;
    targets.is_float = false;
    targets.shape = weights.shape = {std::ssize(datum.tokens)};
    targets.integers.assign(text.begin() + 1, text.end());
    weights.floats.assign(datum.tokens.size(), 1.0f);
    std::fill_n(weights.floats.begin(), 7, 0.0f);
    datum.inputs["target_tokens"] = targets;
    datum.inputs["weights"] = weights;
    batch.data.push_back(std::move(datum));
  }
  return batch;
}

}  // namespace lockstep
