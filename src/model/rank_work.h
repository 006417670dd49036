// The kernels' work counts of all ranks, as a single rank would have them: work that several ranks repeat counts once.
//   const ForwardCounts all = work_of_ranks(ranks, [&](int local) { return parts[local]->work(); });
#pragma once
#include <functional>

#include "model/forward_counts.h"
#include "parallel/ranks.h"

namespace lockstep {

// `of`: a local rank's own. All owners of ranks call together.
ForwardCounts work_of_ranks(Ranks& ranks, const std::function<ForwardCounts(int)>& of);

}  // namespace lockstep
