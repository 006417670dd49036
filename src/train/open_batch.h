// A batch whose sequences arrive in pieces (Trainer::begin_batch): which have come, and their results by their place in the batch,
// whatever the order. Knows no gradient. Host data only.
//   OpenBatch batch(plan, loss, index); batch.check(places, piece); batch.put(places, piece, std::move(result), sums); batch.finish();
#pragma once
#include <set>

#include "train/options.h"
#include "train/loss_metrics.h"
#include "train/rank_record.h"

namespace lockstep {

class OpenBatch {
 public:
  // Errors invalid_argument: no sequences; a normaliser that is not known; an index loss without the number of rows.
  OpenBatch(const BatchPlan& plan, const LossOptions& loss, const IndexTraining& index);

  std::size_t sequences() const { return plan_.sequences; }
  const LossOptions& loss() const { return loss_; }
  const IndexTraining& index() const { return index_; }
  double index_weight() const { return index_.index_loss ? 1.0 / static_cast<double>(plan_.rows) : 0.0; }  // of one row

  // Errors invalid_argument: a place outside the batch, one that is taken, more rows than planned, a declared group that came
  // in an earlier piece; nothing has changed then.
  void check(const std::vector<std::size_t>& places, const std::vector<TrainSequence>& piece) const;
  // Results and row sums of the sequences of these places.
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
