// NoRA initialisation of an adapter: as initial_adapter of model/adapter.h (Kaiming), with each column of A, one an input,
// scaled to length 1 over the rank. B is +0. Pure function.
//   const WeightImages images = nora_adapter(*layout, seed);
#pragma once
#include "model/adapter.h"

namespace lockstep {

// A zero column stays zero. Sums of squares in double precision, by ascending rank.
WeightImages nora_adapter(const AdapterLayout& layout, std::uint64_t seed);

}  // namespace lockstep
