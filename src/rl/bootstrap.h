// Percentile bootstrap confidence intervals of means (Efron 1979). Resampling uses Philox, so the same seed gives the same interval
// everywhere. Pure functions.
//   std::vector<Interval> i = bootstrap_means({pass_at_1_of_problem, greedy_of_problem}, seed);
#pragma once
#include <cstdint>
#include <vector>

namespace lockstep {

struct Interval {
  double value = 0, low = 0, high = 0;  // the mean, and 95% of the means that another draw of items would give
};
inline bool disjoint(const Interval& a, const Interval& b) { return a.high < b.low || b.high < a.low; }

inline constexpr int kBootstrapResamples = 2000;

// One interval per column. A column has one value per item; all have the same number, at least one, and share the draws of items.
std::vector<Interval> bootstrap_means(const std::vector<std::vector<double>>& columns, std::uint64_t seed, int resamples = kBootstrapResamples);

}  // namespace lockstep
