// Plans of an engine that follow each other through the stages of a pipeline (docs/ranks.md): while a stage works on one, the stage before works on the
// next. A plan's sequences stand still (Sequence::under_way) until it has been through all stages and its tokens are known, so a plan has none of those that
// are under way; their texts end with the guesses of the plan meanwhile. Whoever changes such a sequence lets all plans come through before (settle()), and
// says where its text is cut (Sequence::cut): rows behind that harm nobody, whatever became of them.
//   PlanUnderWay& next = plans.enter(plan, wants); ... const PlanUnderWay through = plans.leave(); plans.settle();
// Knows no device. Used by one thread at a time.
#pragma once
#include <deque>
#include <exception>
#include <functional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/step_wants.h"

namespace lockstep {

// The first row of a sequence that went wrong: its position, and what is wrong (flags of kernels/*/*.h; 0: nothing).
struct RowFault {
  std::int64_t position = -1;
  std::int32_t flags = 0;
  // The earlier of the two.
  void join(const RowFault& other) {
    if (other.flags != 0 && (flags == 0 || other.position < position)) *this = other;
  }
};
using PageFaults = std::unordered_map<std::int32_t, RowFault>;  // by page

struct PlanUnderWay {
  std::vector<PlannedSlice> plan;
  StepWants wants;
  std::vector<RowFault> read;  // by slice: rows in its pages that an earlier plan wrote, and that went wrong there
};

class PlansUnderWay {
 public:
  // `turn` lets every plan go on by a stage, and absorbs the one that has come through.
  explicit PlansUnderWay(std::function<void()> turn) : turn_(std::move(turn)) {}
  PlansUnderWay(const PlansUnderWay&) = delete;
  PlansUnderWay& operator=(const PlansUnderWay&) = delete;

  // Whether plans may follow each other now: there are stages and two sequences or more, and no bound on a step's time is to be kept (the time of a turn is
  // that of several plans). Not after a forward that failed, until one alone has not: so what fails always fails in each step, and not in every second one.
  bool may_follow(const EngineOptions& options, int stages, const Scheduler& scheduler) const;

  bool empty() const { return plans_.empty(); }
  const std::deque<PlanUnderWay>& all() const { return plans_; }                // the oldest first
  PlanUnderWay& enter(const std::vector<PlannedSlice>& plan, StepWants wants);  // stays where it is until it leaves
  PlanUnderWay leave();                                                         // the oldest
  void forget();                                                                // a forward has failed
  void ran_alone() { failed_ = false; }                                         // one has not, with nothing beside it
  // Rows of these pages went wrong: sequences that share them and are under way would have flagged the same rows themselves.
  void read_faults(const PageFaults& pages);

  // Takes turns until none is under way. False: none was. An error ends it, since then none is any more; rethrow() throws it.
  bool settle();
  void rethrow();

 private:
  std::function<void()> turn_;
  std::deque<PlanUnderWay> plans_;
  std::exception_ptr error_;
  bool failed_ = false;
};

}  // namespace lockstep
