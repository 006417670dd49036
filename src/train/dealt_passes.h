// The passes of ranks that share experts and have sequences of their own (model/dealt_rows.h): they take as many, so that all meet in each exchange, though
// some have no rows in some. Host data only; on the thread of its rank.
//   const DealtPasses passes(parts_of_ranks, data); for (i < passes.count()) job.dealt = passes.rows(backend, i);
#pragma once
#include <memory>

#include "model/dealt_rows.h"
#include "train/rank_record.h"

namespace lockstep {

class DealtPasses {
 public:
  // `parts`: of each rank of the group, its passes.
  DealtPasses(std::vector<std::vector<PassPart>> parts, const std::vector<TrainSequence>& data) : parts_(std::move(parts)), data_(data) {}
  std::size_t count() const;
  // Each rank's sequences in a pass; none where it has no more.
  std::vector<std::size_t> sequences(int rank, std::size_t pass) const;
  std::shared_ptr<const DealtRows> rows(Backend& backend, std::size_t pass) const;

 private:
  std::vector<std::vector<PassPart>> parts_;
  const std::vector<TrainSequence>& data_;
};

}  // namespace lockstep
