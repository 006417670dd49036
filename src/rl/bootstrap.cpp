#include "rl/bootstrap.h"

#include <algorithm>

#include "base/error.h"
#include "base/philox.h"

namespace lockstep {

std::vector<Interval> bootstrap_means(const std::vector<std::vector<double>>& columns, std::uint64_t seed, int resamples) {
  std::vector<Interval> intervals(columns.size());
  if (columns.empty()) return intervals;
  const std::size_t items = columns.front().size();
  for (const auto& column : columns)
    if (column.empty() || column.size() != items || items > 0xffffffffu || resamples < 1)
      fail(ErrorCode::invalid_argument, "a bootstrap over {} and {} items with {} resamples; allowed are equal numbers from 1 on", items, column.size(),
           resamples);
  const auto n = static_cast<double>(items);
  for (std::size_t c = 0; c < columns.size(); ++c) {
    double sum = 0;
    for (const double x : columns[c]) sum += x;
    intervals[c].value = sum / n;
  }
  std::vector<std::vector<double>> means(columns.size());
  std::vector<double> sums(columns.size());
  for (int r = 0; r < resamples; ++r) {
    RandomSequence random(seed, RandomStream::bootstrap, static_cast<std::uint64_t>(r));
    std::fill(sums.begin(), sums.end(), 0.0);
    for (std::size_t i = 0; i < items; ++i) {
      const std::uint32_t drawn = random.below(static_cast<std::uint32_t>(items));
      for (std::size_t c = 0; c < columns.size(); ++c) sums[c] += columns[c][drawn];
    }
    for (std::size_t c = 0; c < columns.size(); ++c) means[c].push_back(sums[c] / n);
  }
  const auto cut = static_cast<std::size_t>(resamples / 40);  // 2.5% at each end
  for (std::size_t c = 0; c < columns.size(); ++c) {
    std::sort(means[c].begin(), means[c].end());
    intervals[c].low = means[c][cut];
    intervals[c].high = means[c][means[c].size() - 1 - cut];
  }
  return intervals;
}

}  // namespace lockstep
