// Weights of which a rank keeps a share alone: a segment's parameters are whole on it while the segment is computed (train/gathered_weights.h). The segments
// are those of the model's forward (model/operations/segment.h), the input embedding stands with the first one, final norm and head with the last.
//   options.segment_weights = &gathered; Context ctx = runtime.context(gathered.whole(), cache, batch, options, &tape);
// A forward says which segment comes (Context::begin_segment), its backward which segment is done.
#pragma once
#include <cstdint>

namespace lockstep {

class SegmentWeights {
 public:
  virtual ~SegmentWeights() = default;
  // The segment's parameters are whole from here on; others are not.
  virtual void use(std::int64_t segment) = 0;
  // In the backward: all gradients of the segment's parameters but the head's are there, and the segment before it comes.
  virtual void leave(std::int64_t segment) = 0;
};

}  // namespace lockstep
