#include "engine/plans_under_way.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "engine/drafts/step_guesses.h"

namespace lockstep {

bool PlansUnderWay::may_follow(const EngineOptions& options, int stages, const Scheduler& scheduler) const {
  if (stages < 2 || failed_ || !options.plans_follow || options.live_token_seconds > 0) return false;
  const std::vector<Sequence*>& running = scheduler.running();
  const std::vector<Sequence*>& waiting = scheduler.waiting();
  return std::min(options.max_sequences, std::ssize(running) + std::ssize(waiting)) >= 2;
}

PlanUnderWay& PlansUnderWay::enter(const std::vector<PlannedSlice>& plan, StepWants wants) {
  plans_.push_back({plan, std::move(wants), std::vector<RowFault>(plan.size())});
  show_guesses(plan);
  for (const PlannedSlice& p : plan) p.sequence->under_way = true;
  return plans_.back();
}

PlanUnderWay PlansUnderWay::leave() {
  PlanUnderWay through = std::move(plans_.front());
  plans_.pop_front();
  hide_guesses(through.plan);
  for (const PlannedSlice& p : through.plan) p.sequence->under_way = false;
  return through;
}

void PlansUnderWay::forget() {
  failed_ = true;
  while (!plans_.empty()) leave();
}

void PlansUnderWay::read_faults(const PageFaults& pages) {
  for (PlanUnderWay& one : plans_)
    for (std::size_t i = 0; i < one.plan.size(); ++i)
      for (const std::int32_t page : one.plan[i].sequence->pages)
        if (const auto bad = pages.find(page); bad != pages.end()) one.read[i].join(bad->second);
}

bool PlansUnderWay::settle() {
  if (plans_.empty()) return false;
  try {
    while (!plans_.empty()) turn_();
  } catch (...) {
    error_ = std::current_exception();
  }
  return true;
}

void PlansUnderWay::rethrow() {
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

}  // namespace lockstep
