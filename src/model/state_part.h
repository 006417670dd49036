// The three values that training stores per weight: master and two moments. Writers of checkpoints request one parameter's at a time.
//   const WeightImages masters = trainer.state().images(StatePart::master);
#pragma once
#include <cstdint>

namespace lockstep {

enum class StatePart : std::uint8_t { master, first_moment, second_moment };

}  // namespace lockstep
