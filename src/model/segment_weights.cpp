#include "model/segment_weights.h"

#include "base/error.h"
#include "model/context.h"

namespace lockstep {

void begin_segment(Context& ctx, std::int64_t segment) {
  SegmentWeights* const weights = ctx.options().segment_weights;
  if (!weights) return;
  weights->use(segment);
  if (ctx.tape()) ctx.tape()->record([weights, segment] { weights->leave(segment); });
}

void refuse_weight(const Parameter& parameter) {
  fail(ErrorCode::internal, "'{}' is not whole on this rank: it is of segment {}, and another one is computed", parameter.name, parameter.segment);
}

}  // namespace lockstep
