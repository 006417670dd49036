// Metrics of a loss over a batch. Their names are NAME:REDUCTION, so that clients know how to combine those of several calls (docs/losses.md).
//   LossMetricSums sums(loss); sums.add(data, result); result.metrics = sums.metrics(result);
// Sums are order-free, so no metric depends on pieces, micro-batches or ranks. Only scored targets with a weight other than 0 count.
#pragma once
#include "numerics/exact_sum.h"
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
