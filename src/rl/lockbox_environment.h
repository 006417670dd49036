// Lockbox as an Environment of many turns (the game itself: lockbox.h).
#pragma once
#include <memory>

#include "rl/environment.h"

namespace lockstep {

std::unique_ptr<Environment> make_lockbox_environment();

}  // namespace lockstep
