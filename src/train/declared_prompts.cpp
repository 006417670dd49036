#include "train/declared_prompts.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <utility>
#include <vector>

namespace lockstep {

std::ptrdiff_t unweighted_rows(const TrainSequence& s) {
  std::size_t targets = 0;
  while (targets < s.weights.size() && s.weights[targets] == 0 && (s.ratio_mask.empty() || s.ratio_mask[targets] == 0)) ++targets;
  return static_cast<std::ptrdiff_t>(targets) / s.targets_per_row;
}

void declare_group(std::vector<TrainSequence>& batch, const std::vector<std::size_t>& members, std::ptrdiff_t rows) {
  for (const std::size_t s : members) {
    batch[s].prefix_group = static_cast<std::int64_t>(members[0]);
    batch[s].shared_prefix = rows;
    std::fill_n(batch[s].targets.begin(), rows * batch[s].targets_per_row, -1);
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

void declare_pairs(std::vector<TrainSequence>& batch) {
  for (std::size_t s = 0; s + 1 < batch.size(); s += 2) {
    const TrainSequence &a = batch[s], &b = batch[s + 1];
    const auto row_of = [](const TrainSequence& one, std::ptrdiff_t row) {  // the experts that a caller gives it
      const std::ptrdiff_t width = std::ssize(one.experts) / std::ssize(one.tokens);
      return std::vector<std::int32_t>(one.experts.begin() + row * width, one.experts.begin() + (row + 1) * width);
    };
    const std::ptrdiff_t most = std::min(unweighted_rows(a), unweighted_rows(b));
    std::ptrdiff_t rows = std::mismatch(a.tokens.begin(), a.tokens.begin() + most, b.tokens.begin(), b.tokens.begin() + most).first - a.tokens.begin();
    for (std::ptrdiff_t row = 0; row < rows; ++row)
      if (row_of(a, row) != row_of(b, row)) rows = row;  // rows through other experts are other rows
    if (rows > 0) declare_group(batch, {s, s + 1}, rows);
  }
}

}  // namespace lockstep
