#include "runs/truncated_importance.h"

#include <algorithm>

#include "numerics/elementary_double.h"

namespace lockstep {

std::int64_t weigh_by_importance(std::vector<TrainSequence>& sequences, const std::vector<std::vector<float>>& trainer_logprobs, double cap) {
  constexpr double kFurthest = 80;  // beyond it a ratio is past every cap, or nothing
  std::int64_t truncated = 0;
  for (std::size_t s = 0; s < sequences.size(); ++s) {
    TrainSequence& d = sequences[s];
    for (std::size_t i = 0; i < d.tokens.size(); ++i) {
      if (d.targets[i] < 0 || d.weights[i] == 0) continue;
      const float trainer = trainer_logprobs[s][i];
      const double distance = static_cast<double>(trainer) - static_cast<double>(d.old_logprobs[i]);
      const double ratio = exp_double(std::clamp(distance, -kFurthest, kFurthest));
      truncated += ratio > cap;
      d.weights[i] = static_cast<float>(static_cast<double>(d.weights[i]) * std::min(ratio, cap));
      d.old_logprobs[i] = trainer;
    }
  }
  return truncated;
}

}  // namespace lockstep
