// Weights of which a rank keeps a share alone: a segment's parameters are whole on it while the segment is computed (train/gathered_weights.h). The segments
// are those of the model's forward (model/operations/segment.h), the input embedding stands with the first one, final norm and head with the last.
//   options.segment_weights = &gathered; Context ctx = runtime.context(gathered.whole(), cache, batch, options, &tape);
// A forward says which segment comes, its backward which segment is done.
#pragma once
#include <cstdint>

#include "model/parameter.h"

namespace lockstep {

class Context;

class SegmentWeights {
 public:
  virtual ~SegmentWeights() = default;
  // The segment's parameters are whole from here on; others are not.
  virtual void use(std::int64_t segment) = 0;
  // In the backward: all gradients of the segment's parameters but the head's are there, and the segment before it comes.
  virtual void leave(std::int64_t segment) = 0;
};

// Before a segment of the forward, the first one's before the input embedding: uses it, and leaves it in the backward. Nothing where all weights are whole.
void begin_segment(Context& ctx, std::int64_t segment);
// Error internal, for a parameter of a segment that is not computed now.
[[noreturn]] void refuse_weight(const Parameter& parameter);

}  // namespace lockstep
