// The constants of one AdamW step for the kernel (kernels/optimizer): hyperparameters, and bias corrections of that step. Plain values.
//   const AdamStep step(adam, 1); backend.launch(&KernelTable::adamw, step.of(master, m, v, next, {}, gradient, norm, true));
#pragma once
#include "kernels/launch.h"
#include "train/optimizers/optimizer.h"

namespace lockstep {

class AdamStep {
 public:
  // `step`: from 1.
  AdamStep(const AdamParameters& adam, std::int64_t step);
  // Views as AdamW's, of one size, here made flat; `decays`: a matrix.
  AdamW of(const View& master, const View& m, const View& v, const View& master_out, const View& compute_out, const View& gradient, const View& norm,
           bool decays) const;

 private:
  AdamParameters adam_;
  float bias1_, bias2_;
};

}  // namespace lockstep
