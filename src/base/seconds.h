// The seconds since a point in time. Any thread.
//   const auto began = std::chrono::steady_clock::now(); ... seconds_since(began)
#pragma once
#include <chrono>

namespace lockstep {

inline double seconds_since(std::chrono::steady_clock::time_point began) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
}

}  // namespace lockstep
