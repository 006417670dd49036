// Countdown as an Environment (the game itself: countdown.h).
#pragma once
#include <memory>

#include "rl/environment.h"

namespace lockstep {

std::unique_ptr<OneTurnEnvironment> make_countdown_environment();

}  // namespace lockstep
