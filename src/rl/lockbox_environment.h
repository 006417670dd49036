// Lockbox as an Environment of many turns (the game itself: rl/lockbox.h).
//   const std::unique_ptr<Environment> lockbox = make_lockbox_environment();
#pragma once
#include <memory>

#include "rl/environment.h"

namespace lockstep {

std::unique_ptr<Environment> make_lockbox_environment();

}  // namespace lockstep
