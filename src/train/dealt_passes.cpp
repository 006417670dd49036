#include "train/dealt_passes.h"

#include <algorithm>

#include "numerics/form.h"
#include "train/micro_batch.h"

namespace lockstep {

std::size_t DealtPasses::count() const {
  std::size_t most = 0;
  for (const std::vector<PassPart>& of_rank : parts_) most = std::max(most, of_rank.size());
  return most;
}

std::vector<std::size_t> DealtPasses::sequences(int rank, std::size_t pass) const {
  const std::vector<PassPart>& own = parts_[static_cast<std::size_t>(rank)];
  return pass < own.size() ? own[pass].sequences : std::vector<std::size_t>();
}

// Segments are numbered as a batch of all ranks' sequences would have them (model/batch.h).
std::shared_ptr<const DealtRows> DealtPasses::rows(Backend& backend, std::size_t pass) const {
  std::vector<std::int64_t> begin{0};
  std::vector<std::int32_t> segments;
  std::int32_t segment = -1;
  for (int rank = 0; rank < static_cast<int>(parts_.size()); ++rank) {
    for (const SequenceSlice& slice : plan_rows(data_, sequences(rank, pass), 1, false).slices)
      for (std::int64_t i = 0; i < std::ssize(slice.tokens); ++i) {
        if (i == 0 || (slice.begin + i) % kGradientBlock == 0) ++segment;
        segments.push_back(segment);
      }
    begin.push_back(std::ssize(segments));
  }
  return std::make_shared<const DealtRows>(backend, std::move(begin), segments);
}

}  // namespace lockstep
