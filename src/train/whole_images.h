// The images of a whole model, put together from what each rank tells of its share. Where ranks are elsewhere, every owner gets the whole.
//   WeightImages masters = whole_images(ranks, *model, profile, [&](int local) { return parts[local]->state().images(StatePart::master); });
#pragma once
#include <functional>

#include "model/model.h"
#include "model/weights.h"
#include "parallel/ranks.h"

namespace lockstep {

// `of` is called on every local rank's thread; what ranks of data-parallel rank 0 answer is taken, of their shares (model/sharding.h).
WeightImages whole_images(Ranks& ranks, const Model& model, const Profile& profile, const std::function<WeightImages(int)>& of);

}  // namespace lockstep
