// A digest of a trainer's state that shares of it have together, however ranks cut it: the sum modulo 2^64, over all values, of a value's bits times an odd
// number that its part and its place in the whole parameter determine. Zeros add nothing, so a moment that is not kept is one of zeros. It tells accidents and
// other states apart, not an attacker's. Pure functions.
//   sum += state_sum(StatePart::master, manifest.parameter(place.parameter), place, values);
#pragma once
#include <cstdint>
#include <span>

#include "model/rows_place.h"
#include "model/state_part.h"

namespace lockstep {

// Of these rows of a share of the parameter `whole`; values: place.size() of them.
std::uint64_t state_sum(StatePart part, const Parameter& whole, const RowsPlace& place, std::span<const float> values);

}  // namespace lockstep
