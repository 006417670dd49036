// Plans the next forward: which sequences compute which rows, in which pages.
// 1. running sequences that decode, one row each; 2. chunks of running prompts; 3. admission of waiting ones. Rows of a prompt that are read in place of
// being computed (engine/kept_scores.h) are planned as if they were.
// Within each, accounts are in fair order (engine/fair_order.h), and sequences of one account in order of arrival.
// Pages: when none is free, idle pages of the prefix cache are freed; then the last running sequence in that order (of one account the youngest) is
// preempted: it waits again, and later recomputes its prompt and what it generated. It is also preempted for a waiting sequence of an account that
// has less. The first sequence is never preempted, and a request that would not fit the cache alone is refused, so everything finishes. A waiting
// sequence may share pages that the same forward fills, since every operation writes all rows of a layer before any row reads.
// Weights: a forward has one set. Where requests bring their own, sets take turns (engine/weight_turns.h); a waiting sequence of another set keeps
// its place, and later ones do not get the pages it needs.
// With EngineOptions::live_token_seconds rows of live sequences come first, then those of others as the step's time allows (engine/live_room.h). Live
// sequences preempt others, never the reverse; the first of the others keeps its pages.
// Where plans follow each other through the stages of a pipeline (engine/plans_under_way.h), a plan has some of the sequences, so that others are left for
// the next, and none of those that are under way. Until those have come through nobody is preempted and none makes room for another: who needs that waits
// for it (needs_all()). Pages go on as in one plan after another, since every stage works on the plans in their order: a plan may share pages that one before
// it fills, and fill pages that were released.
// Knows no device and no model. Used by one thread at a time.
//   scheduler.add(s); for (const PlannedSlice& p : scheduler.plan()) scheduler.commit(p);
#pragma once
#include <optional>
#include <vector>

#include "engine/row_budget.h"
#include "engine/sequence_pages.h"
#include "engine/sequence_queues.h"
#include "engine/weight_turns.h"

namespace lockstep {

class Scheduler {
 public:
  // `pages` of options.page_size positions; counts go to `counters`.
  Scheduler(const EngineOptions& options, std::int64_t pages, EngineCounters& counters);

  // Sequences belong to the caller and stay until removed. `s` waits behind all others.
  void add(Sequence& s) { queues_.add(s); }
  // Finished or cancelled: releases its pages. The prefix cache drops those from position `forget_from` on (invalid entries).
  void remove(Sequence& s, std::int64_t forget_from = std::numeric_limits<std::int64_t>::max());
  // The next forward, and what is read beside it; valid until the next call of plan, preempt or roll_back. Empty when nothing waits or runs. `groups`
  // above 1: one of that many plans that follow each other; it may be empty while others are under way.
  const std::vector<PlannedSlice>& plan(std::int64_t groups = 1);
  // Whether somebody needs a place or pages of others, which can be had when no plan is under way.
  bool needs_all() const;
  // Adds rows for up to that many draft tokens behind the last row of a slice, as far as forward and cache have room left; nothing is preempted for
  // them. Returns how many. They do not enter the prefix cache.
  std::int64_t extend(std::size_t slice, std::int64_t rows);
  std::int64_t rows_left() const { return rows_.left(); }
  // The forward has run and its tokens are appended: the slice's rows are in the cache, of draft tokens the accepted ones.
  void commit(const PlannedSlice& slice);
  // Reports the seconds of the planned step.
  void observe(double seconds) { rows_.observe(seconds); }
  // The forward has failed: all running sequences wait again and the prefix cache is empty.
  void roll_back();
  // Preempts: moves a running sequence back to the waiting ones. The prefix cache drops pages from `forget_from` on, as above.
  void preempt(Sequence& s, std::int64_t forget_from = std::numeric_limits<std::int64_t>::max());
  // The sequence has fewer tokens than when it was last planned: releases the pages behind its end; its last token is computed again. A partly used
  // page that others share is left alone, and its rows are computed again into a new page; with `whole_pages` (SequencePages) so is every partly
  // used page.
  void truncate(Sequence& s, bool whole_pages = false);
  // New weights (WeightSet::identity) of the sequences that bring none of their own: nothing cached under the old ones is
  // used again, except by sequences that run. None: the weights are the same, and what is cached beside their entries is not: nothing is used again.
  void set_weights(std::optional<std::uint64_t> identity);

  bool idle() const { return queues_.empty(); }
  const std::vector<Sequence*>& running() const { return queues_.running(); }  // in order of arrival
  const std::vector<Sequence*>& waiting() const { return queues_.waiting(); }  // in order of arrival
  const PageAllocator& pages() const { return pages_.allocator(); }
  const PrefixCache& prefix_cache() const { return pages_.prefix_cache(); }

 private:
  enum class Whose { everybody, live, others };
  static bool is_of(Whose whose, const Sequence& s) { return whose == Whose::everybody || is_live(s) == (whose == Whose::live); }
  void plan_rows(Sequence& s);
  void plan_turn(std::uint64_t weights);
  void plan_those(std::uint64_t weights, Whose whose);
  bool reserve(Sequence& s, std::int64_t& rows);
  void make_way();
  void enter(Sequence& s);
  void admit(std::uint64_t weights, Whose whose);

  EngineOptions options_;
  EngineCounters& counters_;
  SequencePages pages_;
  WeightTurns turns_;
  SequenceQueues queues_;
  RowBudget rows_;
  std::vector<PlannedSlice> plan_;
  bool preempted_ = false;  // in this plan
  // Of this plan: others are under way; how many slices it may have, of running sequences and in all.
  bool others_under_way_ = false;
  std::int64_t most_of_running_ = 0, most_slices_ = 0;
  bool short_of_pages_ = false;  // a sequence had no pages while others were under way
};

}  // namespace lockstep
