// Assembles the images of a whole model from the shares of all ranks. With ranks in several owners, every owner gets the whole.
//   WeightImages masters = whole_images(ranks, *model, profile, [&](int local) { return parts[local]->state().images(StatePart::master); });
#pragma once
#include <functional>

#include "model/model.h"
#include "model/weights.h"
#include "parallel/ranks.h"

namespace lockstep {

// Calls `of` on every local rank's thread; the answers of data-parallel rank 0 are used, each of its rank's share (model/sharding.h).
WeightImages whole_images(Ranks& ranks, const Model& model, const Profile& profile, const std::function<WeightImages(int)>& of);

}  // namespace lockstep
