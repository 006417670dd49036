#include "train/declared_prompts.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <utility>
#include <vector>

namespace lockstep {

std::ptrdiff_t unweighted_rows(const TrainSequence& s) {
  std::size_t rows = 0;
  while (rows < s.weights.size() && s.weights[rows] == 0 && (s.ratio_mask.empty() || s.ratio_mask[rows] == 0)) ++rows;
  return static_cast<std::ptrdiff_t>(rows);
}

void declare_group(std::vector<TrainSequence>& batch, const std::vector<std::size_t>& members, std::ptrdiff_t rows) {
  for (const std::size_t s : members) {
    batch[s].prefix_group = static_cast<std::int64_t>(members[0]);
    batch[s].shared_prefix = rows;
    std::fill_n(batch[s].targets.begin(), rows, -1);
  }
}

void declare_prompts(std::vector<TrainSequence>& batch) {
  // Tokens, and the experts that a caller gives their rows: rows through other experts are other rows.
  using Prompt = std::pair<std::vector<std::int32_t>, std::vector<std::int32_t>>;
  std::map<Prompt, std::vector<std::size_t>> groups;
  for (std::size_t i = 0; i < batch.size(); ++i) {
    const TrainSequence& s = batch[i];
    const std::ptrdiff_t rows = unweighted_rows(s), of_row = s.tokens.empty() ? 0 : std::ssize(s.experts) / std::ssize(s.tokens);
    groups[{{s.tokens.begin(), s.tokens.begin() + rows}, {s.experts.begin(), s.experts.begin() + rows * of_row}}].push_back(i);
  }
  for (const auto& [prompt, members] : groups) {
    if (!prompt.first.empty() && members.size() >= 2) declare_group(batch, members, std::ssize(prompt.first));
  }
}

}  // namespace lockstep
