// A batch whose sequences arrive in pieces (Trainer::begin_batch): tracks which have arrived, and stores results by index, whatever the order. Knows
// no gradient. Host data only.
//   OpenBatch batch(plan, loss, index); batch.check(places, piece); batch.put(places, piece, std::move(result), sums); batch.finish();
#pragma once
#include <algorithm>
#include <set>

#include "train/loss_metrics.h"
#include "train/options.h"
#include "train/rank_record.h"

namespace lockstep {

class OpenBatch {
 public:
  // Errors invalid_argument: no sequences; a normaliser that is not known; an index loss without the number of rows.
  OpenBatch(const BatchPlan& plan, const LossOptions& loss, const IndexTraining& index);

  std::size_t sequences() const { return plan_.sequences; }
  std::size_t missing() const { return static_cast<std::size_t>(std::count(arrived_.begin(), arrived_.end(), false)); }
  const LossOptions& loss() const { return loss_; }
  const IndexTraining& index() const { return index_; }
  double index_weight() const { return index_.index_loss ? 1.0 / static_cast<double>(plan_.rows) : 0.0; }  // of one row

  // Errors invalid_argument, and nothing changes: an index outside the batch or already filled, more rows than planned, a declared group
  // that came in an earlier piece.
  void check(const std::vector<std::size_t>& places, const std::vector<TrainSequence>& piece) const;
  // Stores results and row sums of the sequences with these indices.
  void put(const std::vector<std::size_t>& places, const std::vector<TrainSequence>& piece, ForwardBackwardResult&& result, const RowSums& sums);
  // Error invalid_argument that names the first sequences that are missing.
  void check_complete() const;
  ForwardBackwardResult finish();

 private:
  BatchPlan plan_;
  LossOptions loss_;
  IndexTraining index_;
  std::vector<bool> arrived_;
  std::set<std::int64_t> groups_;  // declared, that came
  ForwardBackwardResult result_;
  RowSums sums_;
  LossMetricSums metrics_;
};

}  // namespace lockstep
