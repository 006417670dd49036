// The three values that training stores per weight. Writers request one parameter's at a time.
#pragma once
#include <cstdint>

namespace lockstep {

enum class StatePart : std::uint8_t { master, first_moment, second_moment };

}  // namespace lockstep
