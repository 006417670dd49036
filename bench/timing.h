// Seconds of a piece of work by the clock, and the middle of several. Of measuring programs.
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

// Of an even number of values the upper one.
inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}
