// Numbers about a loss over a batch, under the names that clients combine by: NAME:REDUCTION with one colon (docs/losses.md). Sums are
// order-free, so no number depends on pieces, micro-batches or ranks. Counted are scored targets of a weight that is not 0.
//   LossMetricSums sums(loss); sums.add(data, result); result.metrics = sums.metrics(result);
#pragma once
#include "numerics/accumulator.h"
#include "train/data.h"

namespace lockstep {

class LossMetricSums {
 public:
  explicit LossMetricSums(const LossOptions& loss) : loss_(loss) {}
  // `result` by place of `data`.
  void add(const std::vector<TrainSequence>& data, const ForwardBackwardResult& result);
  // `result` has the loss and the number of targets of the whole batch.
  LossMetrics metrics(const ForwardBackwardResult& result);

 private:
  struct Sum {
    ExactSum sum;
    std::int64_t count = 0;
    void add(double value) {
      sum.add(value);
      ++count;
    }
    double mean() { return count > 0 ? sum.total() / static_cast<double>(count) : 0.0; }
  };
  void add_ratio(double log_ratio);
  void add_correction(double log_correction);

  LossOptions loss_;
  std::int64_t sequences_ = 0, targets_ = 0;
  Sum entropy_, ratio_, sampler_k1_, sampler_k3_, reference_k1_, reference_k3_, correction_;
  double ratio_least_ = 0, ratio_most_ = 0, difference_most_ = 0;
  std::int64_t marked_[7] = {};
};

}  // namespace lockstep
