// Adds a step to an engine's counters: its plan, what its forward read and computed, and how many rows each account had. Pure functions.
//   count_plan(plan, counters); count_forward(plan, model, result.work, counters); count_accounts(plan, rows);
#pragma once
#include "engine/scheduler.h"

namespace lockstep {

// Rows of a forward.
struct AccountRows {
  std::shared_ptr<ShareAccount> account;
  std::int64_t rows;
};

// Computed rows, without guesses, which Scheduler::extend counts.
void count_plan(const std::vector<PlannedSlice>& plan, EngineCounters& counters);
// `work`: as the kernels counted it.
void count_forward(const std::vector<PlannedSlice>& plan, const Model& model, const ForwardCounts& work, EngineCounters& counters);
// Adds the plan's rows to those of its accounts, each of which is there once.
void count_accounts(const std::vector<PlannedSlice>& plan, std::vector<AccountRows>& rows);

}  // namespace lockstep
