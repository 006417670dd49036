// Countdown as an Environment (the game itself: rl/countdown.h).
//   const std::unique_ptr<OneTurnEnvironment> countdown = make_countdown_environment();
#pragma once
#include <memory>

#include "rl/environment.h"

namespace lockstep {

std::unique_ptr<OneTurnEnvironment> make_countdown_environment();

}  // namespace lockstep
