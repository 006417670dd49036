#include "train/dealt_passes.h"

#include <algorithm>

#include "numerics/form.h"
#include "train/micro_batch.h"

namespace lockstep {

DealtPasses::DealtPasses(const std::vector<TrainSequence>& data, const std::vector<DealtData>& dealt, const RankPlace& place, std::int64_t micro_batch)
    : data_(data) {
  const int first = place.rank - place.model_rank();
  for (int rank = first; rank < first + place.layout.model(); ++rank) parts_.push_back(pass_parts(data, dealt[static_cast<std::size_t>(rank)], micro_batch, 1));
}

std::size_t DealtPasses::count() const {
  std::size_t most = 0;
  for (const std::vector<PassPart>& of_rank : parts_) most = std::max(most, of_rank.size());
  return most;
}

// Segments are numbered as a batch of all ranks' sequences would have them (model/batch.h).
std::shared_ptr<const DealtRows> DealtPasses::rows(Backend& backend, std::size_t pass) const {
  std::vector<std::int64_t> begin{0};
  std::vector<std::int32_t> segments;
  std::int32_t segment = -1;
  for (const std::vector<PassPart>& of_rank : parts_) {
    const RowPlan plan = pass < of_rank.size() ? plan_rows(data_, of_rank[pass].sequences, 1, false) : RowPlan();
    for (const SequenceSlice& slice : plan.slices)
      for (std::int64_t i = 0; i < std::ssize(slice.tokens); ++i) {
        if (i == 0 || (slice.begin + i) % kGradientBlock == 0) ++segment;
        segments.push_back(segment);
      }
    begin.push_back(std::ssize(segments));
  }
  return std::make_shared<const DealtRows>(backend, std::move(begin), segments);
}

}  // namespace lockstep
