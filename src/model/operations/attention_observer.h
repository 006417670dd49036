// An observer that also gets, for each row of sparse attention, the log-sum-exp over the selected keys and over all keys. exp(selected - all) is the
// part of the dense attention's weight that the selection covers. The same kernel computes the second for the observer alone; no output depends on
// it.
//   struct Shown final : AttentionObserver { void attended(const Attended& seen) override { last = seen.layer; } int last = -1; };
#pragma once
#include "model/observer.h"

namespace lockstep {

class AttentionObserver : public OperationObserver {
 public:
  struct Attended {
    int layer = -1;
    View positions;           // i32 [T, top_k], ascending; -1 where fewer are selected
    View log_sum, log_total;  // f32 [T, heads], of this rank's heads: of the selected keys, of all
  };
  // After the operation's own call, of each attention over a selection.
  virtual void attended(const Attended& seen) = 0;
};

}  // namespace lockstep
