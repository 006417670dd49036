// An observer that is also shown what attention over a selection leaves out: of every row the logarithms of its softmax's sum over the selected keys,
// and over all keys that the row sees, of which the second is computed for it alone, by the same kernel. exp(selected - all) is the part of the dense
// attention that lies inside the selection. No output depends on it.
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
