#include "train/whole_state.h"

#include <utility>

namespace lockstep {

TrainerState WholeState::all() const { return {masters(), images(StatePart::first_moment), images(StatePart::second_moment), ranks_.first().state().steps()}; }

std::vector<float> WholeState::image(StatePart part, std::size_t parameter) const {
  ranks_.check_usable();
  if (ranks_.ranks().size() == 1) return ranks_.first().state().image(part, parameter);
  return std::move(ranks_.images([&](RankTrainer& rank) {
    WeightImages one(ranks_.runtime().model->manifest().parameters().size());
    one[parameter] = rank.state().image(part, parameter);
    return one;
  })[parameter]);
}

std::uint64_t WholeState::master_hash() const { return images_hash(ranks_.runtime().model->manifest(), masters()); }

}  // namespace lockstep
