#include "train/declared_prompts.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>

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
  std::map<std::vector<std::int32_t>, std::vector<std::size_t>> groups;
  for (std::size_t s = 0; s < batch.size(); ++s) {
    const std::vector<std::int32_t>& tokens = batch[s].tokens;
    groups[{tokens.begin(), tokens.begin() + unweighted_rows(batch[s])}].push_back(s);
  }
  for (const auto& [prompt, members] : groups) {
    if (!prompt.empty() && members.size() >= 2) declare_group(batch, members, std::ssize(prompt));
  }
}

}  // namespace lockstep
