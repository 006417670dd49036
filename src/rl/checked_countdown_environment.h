// Countdown whose answers are checked while they are sampled (Episode::check), without knowledge of the problem: the arithmetic of each step is
// checked as soon as its result is written. A wrong result is rolled back, twice; then the whole step is. The final answer is graded as in countdown.
//   make_environment("countdown-checked")
#pragma once
#include <memory>

#include "rl/environment.h"

namespace lockstep {

std::unique_ptr<Environment> make_checked_countdown_environment();

}  // namespace lockstep
