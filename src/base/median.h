// The median of some numbers; of an even count the larger of the two in the middle.
//   const double middle = median({3, 1, 2});
// Of at least one number, none of them NaN. Any thread.
#pragma once
#include <algorithm>
#include <vector>

namespace lockstep {

inline double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace lockstep
