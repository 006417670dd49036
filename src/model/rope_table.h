// The table of rotary angles: f32 [positions, rotary], (cos, sin) pairs, pair j at columns 2j and 2j + 1.
// inv_j = fp32(theta^(-2j/rotary)); angle = fp32(position) * inv_j rounded to fp32, as transformers does; cosine and sine of
// that angle by our own double functions, rounded to fp32 once.
#pragma once
#include <cstdint>
#include <vector>

namespace lockstep {

std::vector<float> rope_table(std::int64_t positions, std::int64_t rotary, double theta);

}  // namespace lockstep
