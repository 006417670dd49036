// The passes of ranks that share experts and have sequences of their own (model/dealt_rows.h): they take as many, so that all meet in each exchange, though
// some have no rows in some. On the thread of its rank.
//   const DealtPasses together(data, dealt, place, 8); job.dealt = together.rows(backend, pass);   // of together.count() passes
#pragma once
#include <memory>

#include "model/dealt_rows.h"
#include "parallel/rank_place.h"
#include "train/rank_record.h"

namespace lockstep {

class DealtPasses {
 public:
  // `dealt`: what each rank has of the data; `place`: this rank's own, in the group of those that share experts.
  DealtPasses(const std::vector<TrainSequence>& data, const std::vector<DealtData>& dealt, const RankPlace& place, std::int64_t micro_batch);
  std::size_t count() const;
  std::shared_ptr<const DealtRows> rows(Backend& backend, std::size_t pass) const;

 private:
  const std::vector<TrainSequence>& data_;
  std::vector<std::vector<PassPart>> parts_;  // of each rank of the group
};

}  // namespace lockstep
