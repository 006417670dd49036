// Assembles the images of a whole model from the shares of all ranks. With ranks in several owners, every owner gets the whole.
//   WeightImages masters = whole_images(ranks, sharding, [&](int local) { return parts[local]->state().images(StatePart::master); });
#pragma once
#include <functional>

#include "model/sharding.h"
#include "parallel/ranks.h"

namespace lockstep {

// Calls `of` on every local rank's thread; the answers of data-parallel rank 0 are used, each of its rank's share, which `sharding` of that rank's place
// cut.
WeightImages whole_images(Ranks& ranks, const std::function<Sharding(const RankPlace&)>& sharding, const std::function<WeightImages(int)>& of);

}  // namespace lockstep
