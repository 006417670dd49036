// Countdown whose answers are checked on the way (Episode::check), by one who sees nothing of the problem: the arithmetic of each step, as soon as its
// result is there. Of a step that is wrong the result is taken back, twice, then the step; what the answer says in the end is graded as in countdown.
//   make_environment("countdown-checked")
#pragma once
#include <memory>

#include "rl/environment.h"

namespace lockstep {

std::unique_ptr<Environment> make_checked_countdown_environment();

}  // namespace lockstep
