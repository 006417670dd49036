// Whether all processes of a run begin with the same weights: each reads the model's folder by itself, and on another host it may be another model under the
// same path, with which a run would go on to weights that nobody can repeat.
//   check_same_weights(ranks, manifest, [&] { return weight_hashes(masters); });
#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "model/weights.h"
#include "parallel/ranks.h"

namespace lockstep {

// Of each parameter, by ParameterId.
std::vector<std::uint64_t> weight_hashes(const WeightImages& images);
std::vector<std::uint64_t> weight_hashes(Backend& backend, const WeightSet& weights);

// Every process makes the call. Where one has all ranks nothing is done, and `hashes` is not called. Error invalid_argument, in each: which process has other
// weights than process 0, its host, and the first parameter that differs.
void check_same_weights(Ranks& ranks, const Manifest& manifest, const std::function<std::vector<std::uint64_t>()>& hashes);

}  // namespace lockstep
