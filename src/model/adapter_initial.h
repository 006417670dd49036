// NoRA's beginning of an adapter beside Kaiming's (initial_adapter of model/adapter.h): the same A, each of its columns, one an input,
// scaled to length 1 over the rank; B +0 likewise. Pure function.
//   const WeightImages images = nora_adapter(*layout, seed);
#pragma once
#include "model/adapter.h"

namespace lockstep {

// A column of zeros stays one. Sums of squares in double precision, by ascending rank.
WeightImages nora_adapter(const AdapterLayout& layout, std::uint64_t seed);

}  // namespace lockstep
