// For measuring programs: the seconds of a piece of work by the clock, and the median of several.
#pragma once
#include <algorithm>
#include <chrono>
#include <vector>

template <class F>
double seconds_of(const F& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// The median; of an even number of values the upper of the two in the middle.
inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}
