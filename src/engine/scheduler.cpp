#include "engine/scheduler.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

#include "base/error.h"
#include "engine/step_counts.h"

namespace lockstep {

Scheduler::Scheduler(const EngineOptions& options, std::int64_t pages, EngineCounters& counters)
    : options_(options), counters_(counters), pages_(options, pages, counters), rows_(options) {}

void Scheduler::set_weights(std::optional<std::uint64_t> identity) {
  if (identity) pages_.forget_weights(turns_.newest());
  else pages_.reset();
  for (Sequence* s : running()) {
    if (identity && turns_.weights_of(*s) != turns_.newest()) continue;
    s->shares = false;
    s->chain = {};
    if (identity && !s->weights) s->mixed_versions = s->mixed_versions || s->computed > 0;
  }
  if (identity) turns_.set_newest(*identity);
}

void Scheduler::remove(Sequence& s, std::int64_t forget_from) {
  pages_.forget(s, forget_from);
  queues_.remove(s);
  pages_.release(s);
}

void Scheduler::preempt(Sequence& s, std::int64_t forget_from) {
  const auto planned = std::find_if(plan_.rbegin(), plan_.rend(), [&](const PlannedSlice& p) { return p.sequence == &s; });
  if (planned != plan_.rend()) {
    rows_.put_back(*planned);
    plan_.erase(std::next(planned).base());
  }
  pages_.forget(s, forget_from);
  pages_.release(s);
  queues_.wait(s);
  ++counters_.preemptions;
  preempted_ = true;
}

void Scheduler::truncate(Sequence& s, bool whole_pages) {
  if (s.running) pages_.truncate(s, whole_pages);
}

void Scheduler::roll_back() {
  while (!running().empty()) {
    Sequence& last = *running().back();
    pages_.release(last);
    queues_.wait(last);
  }
  plan_.clear();
  pages_.reset();
}

// Pages for `rows` more rows; fewer rows when the pages are not there, none when `s` itself had to make room.
bool Scheduler::reserve(Sequence& s, std::int64_t& rows) {
  for (;;) {
    if (const std::int64_t room = pages_.grow(s, s.computed + rows) - s.computed; room > 0) {
      rows = std::min(rows, room);
      return true;
    }
    if (others_under_way_) {
      short_of_pages_ = true;
      return false;
    }
    Sequence& last = *fair_order(running(), Ties::by_arrival, rows_.classes()).back().sequence;
    if (rows_.live_first() && is_live(last) && !is_live(s)) return false;  // it waits: live ones keep what they have
    if (&last == &s && running().size() == 1)
      fail(ErrorCode::internal, "a cache of {} pages of {} does not hold {} positions of one sequence", pages().total(), options_.page_size, s.computed + 1);
    preempt(last);
    if (&last == &s) return false;
  }
}

void Scheduler::plan_rows(Sequence& s) {
  const bool read = s.next_is_kept(), decode = !read && rows_.decodes(s);
  std::int64_t rows = rows_.of(s);
  if (read) rows = std::min(rows, s.kept_prompt.end - s.computed);
  if (rows == 0 || !reserve(s, rows)) return;
  plan_.push_back({&s, s.computed, rows, decode, rows == s.pending(), 0, read});
  rows_.take(plan_.back());
}

const std::vector<PlannedSlice>& Scheduler::plan(std::int64_t groups) {
  plan_.clear();
  others_under_way_ = std::any_of(running().begin(), running().end(), [](const Sequence* s) { return s->under_way; });
  if (!others_under_way_) {
    if (std::exchange(short_of_pages_, false)) groups = 1;  // who had none is in it, and others make room
    make_way();
  }
  most_of_running_ = most_slices_ = std::numeric_limits<std::int64_t>::max();
  if (groups > 1) {
    const std::int64_t run = std::ssize(running()), all = std::min(options_.max_sequences, run + std::ssize(waiting()));
    most_of_running_ = (run + groups - 1) / groups;
    most_slices_ = (all + groups - 1) / groups;
  }
  // A turn may come to nothing, when its sequences had to make room; that of the first in fair order never does.
  for (const std::uint64_t weights : turns_.order(running(), waiting())) {
    plan_turn(weights);
    if (plan_.empty()) continue;
    turns_.taken(weights);
    break;
  }
  // Rows of one adapter stand together, behind all others those that are read.
  const auto place = [](const PlannedSlice& p) { return std::pair(p.read, p.sequence->adapter ? p.sequence->adapter->identity : 0); };
  std::stable_sort(plan_.begin(), plan_.end(), [&](const PlannedSlice& a, const PlannedSlice& b) { return place(a) < place(b); });
  count_plan(plan_, counters_);
  counters_.held_back_forwards += !plan_.empty() && rows_.holds_back();
  return plan_;
}

void Scheduler::plan_turn(std::uint64_t weights) {
  preempted_ = false;
  rows_.begin(std::any_of(running().begin(), running().end(), [](const Sequence* s) { return is_live(*s); }));
  if (!rows_.live_first()) return plan_those(weights, Whose::everybody);
  plan_those(weights, Whose::live);
  plan_those(weights, Whose::others);
}

// Nobody planned before is put back: pages that its rows are to fill may have been found by those that were admitted.
void Scheduler::plan_those(std::uint64_t weights, Whose whose) {
  const std::size_t planned = plan_.size();
  const std::vector<Ranked> order = fair_order(running(), Ties::by_time, rows_.classes());
  for (const bool decoding : {true, false})
    for (const Ranked& one : order) {
      Sequence& s = *one.sequence;
      // One that made room for others does not run any more.
      if (rows_.left() <= 0 || std::ssize(plan_) >= most_of_running_ || s.under_way) continue;
      if (s.running && is_of(whose, s) && turns_.weights_of(s) == weights && rows_.decodes(s) == decoding) plan_rows(s);
    }
  for (std::size_t i = planned; i < plan_.size(); ++i) pages_.share(*plan_[i].sequence, plan_[i].begin + plan_[i].count, true);
  if (!preempted_) admit(weights, whose);
}

namespace {
// The one that has most, where those that have more than `s` have enough pages for it; null: nobody.
Sequence* who_makes_way_for(Sequence& s, const SequenceQueues& queues, const SequencePages& pages, Classes classes) {
  const std::vector<Sequence*> all = queues.running_with(s);
  if (!of_several_accounts(all)) return nullptr;
  const std::vector<Ranked> order = fair_order(all, Ties::by_arrival, classes);
  const auto its = std::find_if(order.begin(), order.end(), [&](const Ranked& one) { return one.sequence == &s; });
  std::int64_t found = pages.available();
  for (auto other = std::next(its); other != order.end(); ++other)
    if (has_more(*other, *its, classes)) found += pages.alone_with(*other->sequence);
  if (!has_more(order.back(), *its, classes) || found < pages.missing(s)) return nullptr;
  return order.back().sequence;
}

struct MakingWay {
  Sequence* first = nullptr;  // who waits
  Sequence* most = nullptr;   // who_makes_way_for it
};
// Who waits, and for whom admit() would have no place or pages, and where another account has more; both null: nobody.
MakingWay first_to_make_way_for(const SequenceQueues& queues, const SequencePages& pages, const RowBudget& rows, std::int64_t most_sequences) {
  if (queues.waiting().empty() || queues.running().empty()) return {};
  const std::vector<Sequence*> order = queues.waiting_in_turn(rows.classes());
  const auto live = std::find_if(order.begin(), order.end(), [](const Sequence* s) { return is_live(*s); });
  Sequence& first = rows.live_first() && live != order.end() ? **live : *order.front();
  const bool place = std::ssize(queues.running()) < most_sequences;
  if (place && pages.missing(first) + pages.missing(queues.running()) <= pages.available()) return {};
  Sequence* const most = who_makes_way_for(first, queues, pages, rows.classes());
  return most ? MakingWay{&first, most} : MakingWay{};
}
}  // namespace

bool Scheduler::needs_all() const { return short_of_pages_ || first_to_make_way_for(queues_, pages_, rows_, options_.max_sequences).first; }

// Before anything is planned: who waits, and has less than others, runs nevertheless. Whether it has does not depend on time, so that nobody is put back and
// forth. Those that have more give it their places, and later, when its rows are planned, their pages.
void Scheduler::make_way() {
  constexpr int kMostAtOnce = 16;  // in one plan; others follow in the next
  for (int i = 0; i < kMostAtOnce; ++i) {
    const auto [first, most] = first_to_make_way_for(queues_, pages_, rows_, options_.max_sequences);
    if (!first) return;
    if (std::ssize(running()) >= options_.max_sequences) preempt(*most);
    pages_.match(*first, turns_.weights_of(*first));
    enter(*first);
  }
}

// From waiting to running, with the pages that were found for it.
void Scheduler::enter(Sequence& s) {
  queues_.run(s);
  counters_.cache_hit_tokens += s.begin;
  if (!std::exchange(s.admitted, true)) s.generation.cached_tokens = s.begin;
}

void Scheduler::admit(std::uint64_t weights, Whose whose) {
  std::int64_t places = options_.max_sequences - static_cast<std::int64_t>(running().size());
  if (waiting().empty() || rows_.left() <= 0 || places <= 0) return;
  // Pages that running prompts will still need are spoken for, and those of waiting sequences that are passed over.
  std::int64_t promised = pages_.missing(running());
  for (Sequence* one : queues_.waiting_in_turn(rows_.classes())) {
    if (rows_.left() <= 0 || std::ssize(plan_) >= most_slices_ || places-- <= 0) return;
    Sequence& s = *one;
    // A rollout's prompt or a long one that the step has no time for keeps its place, and does not hold up a live request.
    if (turns_.weights_of(s) != weights || !is_of(whose, s) || (whose != Whose::others && rows_.of(s) == 0)) {
      promised += pages_.missing(s);
      continue;
    }
    pages_.match(s, weights);
    if (pages_.missing(s) + promised > pages_.available() || rows_.of(s) == 0) return pages_.release(s);
    enter(s);
    plan_rows(s);
    promised += pages_.missing(s);
    pages_.share(s, plan_.back().begin + plan_.back().count, true);
  }
}

std::int64_t Scheduler::extend(std::size_t slice, std::int64_t rows) {
  PlannedSlice& p = plan_[slice];
  rows = rows_.of_guesses(p, rows);
  rows = std::min(rows, pages_.grow(*p.sequence, p.begin + p.count + rows) - p.begin - p.count);
  rows_.take_guesses(p, rows);
  p.count += rows;
  p.drafted += rows;
  counters_.rows += rows;
  counters_.draft_rows += rows;
  counters_.largest_batch = std::max(counters_.largest_batch, rows_.taken());
  return rows;
}

void Scheduler::commit(const PlannedSlice& slice) {
  Sequence& s = *slice.sequence;
  s.computed += slice.count;
  if (slice.read && !s.next_is_kept()) s.kept_prompt = {};
  if (slice.drafted > 0) truncate(s);
  pages_.share(s, s.computed, false, running());
}

}  // namespace lockstep
