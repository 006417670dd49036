// Learning-rate schedules: functions of the step alone, computed in double with our own functions.
//   const double rate = learning_rate({.kind = "cosine", .peak = 1e-4, .warmup = 10, .steps = 200}, 12);
#pragma once
#include <cstdint>
#include <string>

namespace lockstep {

struct Schedule {
  std::string kind = "constant";  // constant, linear, cosine
  double peak = 1e-3;
  double final_fraction = 0;  // of the peak, at the last step
  std::int64_t warmup = 0;    // steps of linear warm-up
  std::int64_t steps = 1;     // total
};

// Rate of step 0 .. steps - 1. Throws invalid_argument for an unknown kind.
double learning_rate(const Schedule& schedule, std::int64_t step);

}  // namespace lockstep
