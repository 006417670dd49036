// Layouts of more ranks than a run may have, for plans (planning/memory_plan.h, planning/step_plan.h), which count each rank without the others.
//   const RankLayout layout = planned_layout("tp=8,pp=16,dp=8"); const std::vector<int> ranks = planned_ranks(layout);
#pragma once
#include "parallel/layout.h"

namespace lockstep {

inline constexpr int kMostPlannedRanks = 1024;  // in all

// As rank_layout, with 1 to kMostPlannedRanks each and at most that many in all.
RankLayout planned_layout(std::string_view text);

// The ranks that a plan counts, ascending: all that a run may have; of a larger layout at most 48, which stand for the rest. They are the first and the last
// rank of a stage (deal.h gives one of them the most); the first seven stages and the last (earlier stages hold more micro-batches; the first layers may be
// of another kind); and the replicas with the first and the last pieces of the first sequences, and the last replica. Other ranks have at most a row of each
// parameter more.
std::vector<int> planned_ranks(const RankLayout& layout);

}  // namespace lockstep
