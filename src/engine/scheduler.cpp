#include "engine/scheduler.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/error.h"

namespace lockstep {

Scheduler::Scheduler(const EngineOptions& options, std::int64_t pages, EngineCounters& counters)
    : options_(options), counters_(counters), pages_(std::make_unique<PageAllocator>(pages)), cache_(*pages_, options.page_size) {}

void Scheduler::add(Sequence& s) { waiting_.push_back(&s); }

void Scheduler::set_weights(std::uint64_t identity) {
  cache_.forget_weights(identity_);
  for (Sequence* s : running_) {
    if (identity_of(*s) != identity_) continue;
    s->shares = false;
    s->chain = {};
    if (!s->weights) s->mixed_versions = s->mixed_versions || s->computed > 0;
  }
  identity_ = identity;
}

void Scheduler::release_pages(Sequence& s) {
  // Last page first, so that the prefix cache gives up the end of a text before its beginning.
  for (std::size_t i = s.pages.size(); i-- > 0;) cache_.release(s.pages[i]);
  s.pages.clear();
  s.computed = s.begin = 0;
  s.chain = {};
  s.shares = true;
  s.mixed_versions = false;
  s.running = false;
}

void Scheduler::remove(Sequence& s, std::int64_t forget_from) {
  for (auto i = static_cast<std::size_t>(std::min(forget_from / options_.page_size, static_cast<std::int64_t>(s.pages.size()))); i < s.pages.size(); ++i)
    cache_.forget(s.pages[i]);
  if (s.running) running_.erase(std::find(running_.begin(), running_.end(), &s));
  else waiting_.erase(std::find(waiting_.begin(), waiting_.end(), &s));
  release_pages(s);
}

void Scheduler::preempt(Sequence& s) {
  const auto planned = std::find_if(plan_.rbegin(), plan_.rend(), [&](const PlannedSlice& p) { return p.sequence == &s; });
  if (planned != plan_.rend()) {
    budget_ += planned->count;
    plan_.erase(std::next(planned).base());
  }
  running_.erase(std::find(running_.begin(), running_.end(), &s));
  release_pages(s);
  wait_again(s);
  ++counters_.preemptions;
  preempted_ = true;
}

void Scheduler::wait_again(Sequence& s) {
  const auto younger = std::find_if(waiting_.begin(), waiting_.end(), [&](const Sequence* w) { return w->id > s.id; });
  waiting_.insert(younger, &s);
}

void Scheduler::truncate(Sequence& s) {
  if (!s.running) return;
  std::int64_t computed = std::min(s.computed, s.known() - 1);
  if (const auto page = static_cast<std::size_t>(computed / options_.page_size);
      computed % options_.page_size != 0 && computed < s.computed && pages_->users(s.pages[page]) > 1)
    computed -= computed % options_.page_size;
  for (; static_cast<std::int64_t>(s.pages.size()) > pages_for(computed); s.pages.pop_back()) cache_.release(s.pages.back());
  cache_.truncate(s.chain, computed / options_.page_size);
  s.computed = computed;
  s.begin = std::min(s.begin, computed);
}

void Scheduler::roll_back() {
  for (std::size_t i = running_.size(); i-- > 0;) {
    release_pages(*running_[i]);
    wait_again(*running_[i]);
  }
  running_.clear();
  plan_.clear();
  cache_.reset();
}

std::int64_t Scheduler::wanted_rows(const Sequence& s) const { return std::min(s.pending(), s.pace.rows > 0 ? s.pace.rows : options_.prefill_chunk); }

std::int32_t Scheduler::obtain_page() {
  const std::int32_t page = pages_->allocate();
  if (page >= 0 || !cache_.evict()) return page;
  ++counters_.evictions;
  return pages_->allocate();
}

// Pages for `rows` more rows; fewer rows when the pages are not there, none when `s` itself had to make room.
bool Scheduler::reserve(Sequence& s, std::int64_t& rows) {
  while (static_cast<std::int64_t>(s.pages.size()) < pages_for(s.computed + rows)) {
    const std::int32_t page = obtain_page();
    if (page >= 0) {
      s.pages.push_back(page);
      continue;
    }
    const std::int64_t room = static_cast<std::int64_t>(s.pages.size()) * options_.page_size - s.computed;
    if (room > 0) {
      rows = room;
      return true;
    }
    Sequence& last = *fair_order(running_, Ties::by_arrival).back().sequence;
    if (&last == &s && running_.size() == 1)
      fail(ErrorCode::internal, "a cache of {} pages of {} does not hold {} positions of one sequence", pages_->total(), options_.page_size, s.computed + 1);
    preempt(last);
    if (&last == &s) return false;
  }
  return true;
}

void Scheduler::plan_rows(Sequence& s) {
  const bool decode = decodes(s);
  std::int64_t rows = std::min(wanted_rows(s), budget_);
  if (rows == 0 || !reserve(s, rows)) return;
  plan_.push_back({&s, s.computed, rows, decode, rows == s.pending()});
  budget_ -= rows;
}

const std::vector<PlannedSlice>& Scheduler::plan() {
  plan_.clear();
  make_way();
  // A turn may come to nothing, when its sequences had to make room; that of the first in fair order never does.
  for (const std::uint64_t identity : turns()) {
    plan_turn(identity);
    if (plan_.empty()) continue;
    last_turn_[identity] = ++turn_;
    break;
  }
  // Rows of one adapter stand together.
  const auto adapter = [](const PlannedSlice& p) { return p.sequence->adapter ? p.sequence->adapter->identity : 0; };
  std::stable_sort(plan_.begin(), plan_.end(), [&](const PlannedSlice& a, const PlannedSlice& b) { return adapter(a) < adapter(b); });
  count_plan();
  return plan_;
}

// The weights that running and waiting sequences have, the one whose turn is longest ago first. One that comes new has had
// its turn, so that none is kept waiting by others that come and go.
std::vector<std::uint64_t> Scheduler::turns() {
  std::map<std::uint64_t, std::uint64_t> present;
  const auto see = [&](const Sequence* s) {
    const std::uint64_t identity = identity_of(*s);
    if (present.contains(identity)) return;
    const auto known = last_turn_.find(identity);
    present[identity] = known != last_turn_.end() ? known->second : ++turn_;
  };
  std::for_each(running_.begin(), running_.end(), see);
  std::for_each(waiting_.begin(), waiting_.end(), see);
  last_turn_ = std::move(present);
  std::vector<std::uint64_t> order;
  for (const auto& [identity, turn] : last_turn_) order.push_back(identity);
  std::sort(order.begin(), order.end(), [&](std::uint64_t a, std::uint64_t b) { return last_turn_[a] < last_turn_[b]; });
  return order;
}

void Scheduler::plan_turn(std::uint64_t identity) {
  budget_ = options_.max_batch_rows;
  preempted_ = false;
  const std::vector<Ranked> order = fair_order(running_, Ties::by_time);
  for (const bool decoding : {true, false})
    for (const Ranked& one : order) {
      Sequence& s = *one.sequence;
      // One that made room for others does not run any more.
      if (budget_ > 0 && s.running && identity_of(s) == identity && decodes(s) == decoding) plan_rows(s);
    }
  for (const PlannedSlice& p : plan_) share(*p.sequence, p.begin + p.count, true);
  if (!preempted_) admit(identity);
}

// Pages that running prompts will still need.
std::int64_t Scheduler::promised_pages() const {
  std::int64_t pages = 0;
  for (const Sequence* s : running_) pages += std::max<std::int64_t>(0, pages_for(s->known()) - static_cast<std::int64_t>(s->pages.size()));
  return pages;
}

// Waiting sequences, in fair order beside those that run.
std::vector<Sequence*> Scheduler::waiting_order() const {
  std::vector<Sequence*> all;
  std::merge(running_.begin(), running_.end(), waiting_.begin(), waiting_.end(), std::back_inserter(all),
             [](const Sequence* a, const Sequence* b) { return a->id < b->id; });
  if (!of_several_accounts(all)) return waiting_;
  std::vector<Sequence*> order;
  for (const Ranked& one : fair_order(all, Ties::by_time))
    if (!one.sequence->running) order.push_back(one.sequence);
  return order;
}

// Before anything is planned: who waits, and for whom admit() would have no place or pages, runs nevertheless where another account has more.
// Whether it has does not depend on time, so that nobody is put back and forth.
void Scheduler::make_way() {
  constexpr int kMostAtOnce = 16;  // in one plan; others follow in the next
  for (int i = 0; i < kMostAtOnce && !waiting_.empty() && !running_.empty(); ++i) {
    Sequence& first = *waiting_order().front();
    const bool place = static_cast<std::int64_t>(running_.size()) < options_.max_sequences;
    if (place && pages_for(first.known()) + promised_pages() <= pages_->free_pages() + cache_.idle()) return;
    if (!gives_way(first)) return;
  }
}

// Those that have more than `s` give it their places, and later, when its rows are planned, their pages.
bool Scheduler::gives_way(Sequence& s) {
  std::vector<Sequence*> all = running_;
  all.insert(std::find_if(all.begin(), all.end(), [&](const Sequence* other) { return other->id > s.id; }), &s);
  if (!of_several_accounts(all)) return false;
  const std::vector<Ranked> order = fair_order(all, Ties::by_arrival);
  const auto its = std::find_if(order.begin(), order.end(), [&](const Ranked& one) { return one.sequence == &s; });
  std::int64_t pages = pages_->free_pages() + cache_.idle();
  for (auto other = std::next(its); other != order.end(); ++other)
    if (has_more(*other, *its))
      for (const std::int32_t page : other->sequence->pages) pages += pages_->users(page) - cache_.holds(page) == 1;
  if (!has_more(order.back(), *its) || pages < pages_for(s.known())) return false;
  if (static_cast<std::int64_t>(running_.size()) >= options_.max_sequences) preempt(*order.back().sequence);
  match(s);
  enter(s);
  return true;
}

// From waiting to running, with the pages that match() found.
void Scheduler::enter(Sequence& s) {
  waiting_.erase(std::find(waiting_.begin(), waiting_.end(), &s));
  const auto older = std::find_if(running_.rbegin(), running_.rend(), [&](const Sequence* r) { return r->id < s.id; });
  running_.insert(older.base(), &s);
  s.running = true;
  s.computed = s.begin = static_cast<std::int64_t>(s.pages.size()) * options_.page_size;
  counters_.cache_hit_tokens += s.begin;
  if (!std::exchange(s.admitted, true)) s.generation.cached_tokens = s.begin;
}

void Scheduler::match(Sequence& s) {
  s.chain = {{identity_of(s), s.adapter ? s.adapter->identity : 0, s.prefix_owner}};
  // The last known token is always computed: its row gives the next one.
  if (options_.prefix_cache && s.pace.cached_pages > 0)
    cache_.match(s.chain.root, s.tokens, std::min(s.pace.cached_pages, (s.known() - 1) / options_.page_size), s.chain, s.pages);
}

void Scheduler::admit(std::uint64_t identity) {
  std::int64_t places = options_.max_sequences - static_cast<std::int64_t>(running_.size());
  if (waiting_.empty() || budget_ <= 0 || places <= 0) return;
  // Pages that running prompts will still need are spoken for, and those of waiting sequences that are passed over.
  std::int64_t promised = promised_pages();
  for (Sequence* one : waiting_order()) {
    if (budget_ <= 0 || places-- <= 0) return;
    Sequence& s = *one;
    if (identity_of(s) != identity) {
      promised += pages_for(s.known());
      continue;
    }
    match(s);
    const std::int64_t missing = pages_for(s.known()) - static_cast<std::int64_t>(s.pages.size());
    if (missing + promised > pages_->free_pages() + cache_.idle()) return release_pages(s);
    enter(s);
    plan_rows(s);
    promised += std::max<std::int64_t>(0, pages_for(s.known()) - static_cast<std::int64_t>(s.pages.size()));
    share(s, plan_.back().begin + plan_.back().count, true);
  }
}

// Enters the full pages of the first `positions` positions. Before the forward only pages that nobody has entered yet;
// after it, a page that another sequence entered takes the place of our own, whose bits are the same.
void Scheduler::share(Sequence& s, std::int64_t positions, bool only_fresh) {
  if (!options_.prefix_cache) return;
  while (s.shares && (s.chain.pages + 1) * options_.page_size <= positions) {
    const auto at = static_cast<std::size_t>(s.chain.pages);
    const auto size = static_cast<std::size_t>(options_.page_size);
    std::int32_t page = s.pages[at];
    switch (cache_.insert(s.chain, std::span<const std::int32_t>(s.tokens).subspan(at * size, size), page, only_fresh)) {
      case PrefixCache::Insertion::fresh:
        break;
      case PrefixCache::Insertion::known:
        if (only_fresh) return;
        cache_.release(s.pages[at]);
        s.pages[at] = page;
        break;
      case PrefixCache::Insertion::refused:
        s.shares = false;
    }
  }
}

std::int64_t Scheduler::extend(std::size_t slice, std::int64_t rows) {
  PlannedSlice& p = plan_[slice];
  Sequence& s = *p.sequence;
  rows = std::min(rows, budget_);
  while (static_cast<std::int64_t>(s.pages.size()) < pages_for(p.begin + p.count + rows)) {
    if (const std::int32_t page = obtain_page(); page >= 0) s.pages.push_back(page);
    else rows = static_cast<std::int64_t>(s.pages.size()) * options_.page_size - p.begin - p.count;
  }
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
  share(s, s.computed, false);
}

void Scheduler::count_plan() {
  if (plan_.empty()) return;
  std::int64_t rows = 0, decode_rows = 0;
  for (const PlannedSlice& p : plan_) {
    rows += p.count;
    if (p.decode) decode_rows += p.count;
    else if (p.begin > p.sequence->begin || !p.last) ++counters_.chunks;
  }
  counters_.forwards += 1;
  counters_.rows += rows;
  counters_.largest_batch = std::max(counters_.largest_batch, rows);
  counters_.decode_tokens += decode_rows;
  counters_.prefill_tokens += rows - decode_rows;
  counters_.mixed_batches += decode_rows > 0 && decode_rows < rows;
}

}  // namespace lockstep
