#include "engine/scheduler.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/error.h"
#include "engine/step_counts.h"

namespace lockstep {

Scheduler::Scheduler(const EngineOptions& options, std::int64_t pages, EngineCounters& counters)
    : options_(options), counters_(counters), pages_(options, pages, counters), room_(options.live_token_seconds) {}

void Scheduler::add(Sequence& s) { waiting_.push_back(&s); }

void Scheduler::set_weights(std::uint64_t identity) {
  pages_.forget_weights(turns_.newest());
  for (Sequence* s : running_) {
    if (turns_.weights_of(*s) != turns_.newest()) continue;
    s->shares = false;
    s->chain = {};
    if (!s->weights) s->mixed_versions = s->mixed_versions || s->computed > 0;
  }
  turns_.set_newest(identity);
}

void Scheduler::remove(Sequence& s, std::int64_t forget_from) {
  pages_.forget(s, forget_from);
  if (s.running) running_.erase(std::find(running_.begin(), running_.end(), &s));
  else waiting_.erase(std::find(waiting_.begin(), waiting_.end(), &s));
  pages_.release(s);
}

namespace {
// Rows of a sequence that a forward may have; `chunk`: EngineOptions::prefill_chunk.
std::int64_t wanted_rows(const Sequence& s, std::int64_t chunk) {
  const std::int64_t pending = s.pending() > 1 && s.begins_layer_cycle() ? s.pending() - 1 : s.pending();
  return std::min(pending, s.pace.rows > 0 ? s.pace.rows : chunk);
}
bool decodes(const Sequence& s, std::int64_t chunk) { return s.computed >= (s.pace.decodes ? 1 : s.prompt_length) && wanted_rows(s, chunk) == 1; }
RowSpan span_of(const PlannedSlice& p) { return {p.begin, p.count, p.last ? 1 + p.drafted : 0}; }
}  // namespace

void Scheduler::preempt(Sequence& s) {
  const auto planned = std::find_if(plan_.rbegin(), plan_.rend(), [&](const PlannedSlice& p) { return p.sequence == &s; });
  if (planned != plan_.rend()) {
    budget_ += planned->count;
    room_.put_back(span_of(*planned), is_live(s));
    plan_.erase(std::next(planned).base());
  }
  running_.erase(std::find(running_.begin(), running_.end(), &s));
  pages_.release(s);
  wait_again(s);
  ++counters_.preemptions;
  preempted_ = true;
}

void Scheduler::wait_again(Sequence& s) {
  const auto younger = std::find_if(waiting_.begin(), waiting_.end(), [&](const Sequence* w) { return w->id > s.id; });
  waiting_.insert(younger, &s);
}

void Scheduler::truncate(Sequence& s, bool whole_pages) {
  if (s.running) pages_.truncate(s, whole_pages);
}

void Scheduler::roll_back() {
  for (std::size_t i = running_.size(); i-- > 0;) {
    pages_.release(*running_[i]);
    wait_again(*running_[i]);
  }
  running_.clear();
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
    Sequence& last = *fair_order(running_, Ties::by_arrival, classes()).back().sequence;
    if (room_.on() && is_live(last) && !is_live(s)) return false;  // it waits: live ones keep what they have
    if (&last == &s && running_.size() == 1)
      fail(ErrorCode::internal, "a cache of {} pages of {} does not hold {} positions of one sequence", pages().total(), options_.page_size, s.computed + 1);
    preempt(last);
    if (&last == &s) return false;
  }
}

std::int64_t Scheduler::rows_with_room(const Sequence& s) {
  const std::int64_t rows = std::min(wanted_rows(s, options_.prefill_chunk), budget_);
  return is_live(s) ? rows : room_.rows(s.computed, rows, s.pending());
}

void Scheduler::plan_rows(Sequence& s) {
  const bool decode = decodes(s, options_.prefill_chunk);
  std::int64_t rows = rows_with_room(s);
  if (rows == 0 || !reserve(s, rows)) return;
  plan_.push_back({&s, s.computed, rows, decode, rows == s.pending()});
  budget_ -= rows;
  room_.take(span_of(plan_.back()), is_live(s));
}

const std::vector<PlannedSlice>& Scheduler::plan() {
  plan_.clear();
  make_way();
  // A turn may come to nothing, when its sequences had to make room; that of the first in fair order never does.
  for (const std::uint64_t weights : turns_.order(running_, waiting_)) {
    plan_turn(weights);
    if (plan_.empty()) continue;
    turns_.taken(weights);
    break;
  }
  // Rows of one adapter stand together.
  const auto adapter = [](const PlannedSlice& p) { return p.sequence->adapter ? p.sequence->adapter->identity : 0; };
  std::stable_sort(plan_.begin(), plan_.end(), [&](const PlannedSlice& a, const PlannedSlice& b) { return adapter(a) < adapter(b); });
  count_plan(plan_, counters_);
  counters_.held_back_forwards += room_.holds_back();
  return plan_;
}

void Scheduler::plan_turn(std::uint64_t weights) {
  budget_ = options_.max_batch_rows;
  preempted_ = false;
  room_.begin(std::any_of(running_.begin(), running_.end(), [](const Sequence* s) { return is_live(*s); }));
  if (!room_.on()) return plan_those(weights, Whose::everybody);
  plan_those(weights, Whose::live);
  plan_those(weights, Whose::others);
}

// Nobody planned before is put back: pages that its rows are to fill may have been found by those that were admitted.
void Scheduler::plan_those(std::uint64_t weights, Whose whose) {
  const std::size_t planned = plan_.size();
  const std::vector<Ranked> order = fair_order(running_, Ties::by_time, classes());
  for (const bool decoding : {true, false})
    for (const Ranked& one : order) {
      Sequence& s = *one.sequence;
      // One that made room for others does not run any more.
      if (budget_ > 0 && s.running && is_of(whose, s) && turns_.weights_of(s) == weights && decodes(s, options_.prefill_chunk) == decoding) plan_rows(s);
    }
  for (std::size_t i = planned; i < plan_.size(); ++i) pages_.share(*plan_[i].sequence, plan_[i].begin + plan_[i].count, true);
  if (!preempted_) admit(weights, whose);
}

namespace {
// Waiting sequences, in fair order beside those that run.
std::vector<Sequence*> waiting_order(const std::vector<Sequence*>& running, const std::vector<Sequence*>& waiting, Classes classes) {
  std::vector<Sequence*> all;
  std::merge(running.begin(), running.end(), waiting.begin(), waiting.end(), std::back_inserter(all),
             [](const Sequence* a, const Sequence* b) { return a->id < b->id; });
  if (!of_several_accounts(all)) return waiting;
  std::vector<Sequence*> order;
  for (const Ranked& one : fair_order(all, Ties::by_time, classes))
    if (!one.sequence->running) order.push_back(one.sequence);
  return order;
}
}  // namespace

// Before anything is planned: who waits, and for whom admit() would have no place or pages, runs nevertheless where another account has more.
// Whether it has does not depend on time, so that nobody is put back and forth.
void Scheduler::make_way() {
  constexpr int kMostAtOnce = 16;  // in one plan; others follow in the next
  for (int i = 0; i < kMostAtOnce && !waiting_.empty() && !running_.empty(); ++i) {
    const std::vector<Sequence*> order = waiting_order(running_, waiting_, classes());
    const auto live = std::find_if(order.begin(), order.end(), [](const Sequence* s) { return is_live(*s); });
    Sequence& first = room_.on() && live != order.end() ? **live : *order.front();
    const bool place = static_cast<std::int64_t>(running_.size()) < options_.max_sequences;
    if (place && pages_.missing(first) + pages_.missing(running_) <= pages_.available()) return;
    if (!gives_way(first)) return;
  }
}

// Those that have more than `s` give it their places, and later, when its rows are planned, their pages.
bool Scheduler::gives_way(Sequence& s) {
  std::vector<Sequence*> all = running_;
  all.insert(std::find_if(all.begin(), all.end(), [&](const Sequence* other) { return other->id > s.id; }), &s);
  if (!of_several_accounts(all)) return false;
  const std::vector<Ranked> order = fair_order(all, Ties::by_arrival, classes());
  const auto its = std::find_if(order.begin(), order.end(), [&](const Ranked& one) { return one.sequence == &s; });
  std::int64_t pages = pages_.available();
  for (auto other = std::next(its); other != order.end(); ++other)
    if (has_more(*other, *its, classes())) pages += pages_.alone_with(*other->sequence);
  if (!has_more(order.back(), *its, classes()) || pages < pages_.missing(s)) return false;
  if (static_cast<std::int64_t>(running_.size()) >= options_.max_sequences) preempt(*order.back().sequence);
  pages_.match(s, turns_.weights_of(s));
  enter(s);
  return true;
}

// From waiting to running, with the pages that were found for it.
void Scheduler::enter(Sequence& s) {
  waiting_.erase(std::find(waiting_.begin(), waiting_.end(), &s));
  const auto older = std::find_if(running_.rbegin(), running_.rend(), [&](const Sequence* r) { return r->id < s.id; });
  running_.insert(older.base(), &s);
  s.running = true;
  counters_.cache_hit_tokens += s.begin;
  if (!std::exchange(s.admitted, true)) s.generation.cached_tokens = s.begin;
}

void Scheduler::admit(std::uint64_t weights, Whose whose) {
  std::int64_t places = options_.max_sequences - static_cast<std::int64_t>(running_.size());
  if (waiting_.empty() || budget_ <= 0 || places <= 0) return;
  // Pages that running prompts will still need are spoken for, and those of waiting sequences that are passed over.
  std::int64_t promised = pages_.missing(running_);
  for (Sequence* one : waiting_order(running_, waiting_, classes())) {
    if (budget_ <= 0 || places-- <= 0) return;
    Sequence& s = *one;
    if (turns_.weights_of(s) != weights || !is_of(whose, s)) {
      promised += pages_.missing(s);
      continue;
    }
    pages_.match(s, weights);
    if (pages_.missing(s) + promised > pages_.available() || rows_with_room(s) == 0) return pages_.release(s);
    enter(s);
    plan_rows(s);
    promised += pages_.missing(s);
    pages_.share(s, plan_.back().begin + plan_.back().count, true);
  }
}

std::int64_t Scheduler::extend(std::size_t slice, std::int64_t rows) {
  PlannedSlice& p = plan_[slice];
  rows = std::min(rows, budget_);
  if (!is_live(*p.sequence)) rows = room_.guessed_rows(p.begin + p.count, rows);
  rows = std::min(rows, pages_.grow(*p.sequence, p.begin + p.count + rows) - p.begin - p.count);
  room_.take_guesses({p.begin + p.count, rows, rows}, is_live(*p.sequence));
  p.count += rows;
  p.drafted += rows;
  budget_ -= rows;
  counters_.rows += rows;
  counters_.draft_rows += rows;
  counters_.largest_batch = std::max(counters_.largest_batch, options_.max_batch_rows - budget_);
  return rows;
}

void Scheduler::commit(const PlannedSlice& slice) {
  Sequence& s = *slice.sequence;
  s.computed += slice.count;
  if (slice.drafted > 0) truncate(s);
  pages_.share(s, s.computed, false);
}

}  // namespace lockstep
