// Assigns pages to sequences: finds them in the prefix cache, takes free or idle ones, shares full ones, releases them. Knows no plan, and preempts
// nothing. Used by one thread at a time.
//   pages.match(s, weights); if (pages.grow(s, 40) < 40) wait(); pages.share(s, 40, false); pages.release(s);
#pragma once
#include <span>

#include "engine/options.h"
#include "engine/sequence.h"

namespace lockstep {

class SequencePages {
 public:
  // `pages` of options.page_size positions; evictions go to `counters`.
  SequencePages(const EngineOptions& options, std::int64_t pages, EngineCounters& counters);
  SequencePages(const SequencePages&) = delete;
  SequencePages& operator=(const SequencePages&) = delete;

  // Gives `s` the cached pages of its text under `weights` (WeightSet::identity); their positions count as computed. Where it is scored, pages whose
  // rows were kept alone (Sequence::kept_prompt), and their positions do not count.
  void match(Sequence& s, std::uint64_t weights);
  // Takes pages for that many positions of `s`, as far as there are any. Returns how many positions its pages have, which may be more.
  std::int64_t grow(Sequence& s, std::int64_t positions);
  // Enters the full pages of the first `positions` positions in the prefix cache. Before the forward only pages that are not in it yet; after it, a
  // page that another sequence entered replaces our own, whose bits are the same. Where one of `running` is still to fill that page in a plan that is under way
  // (engine/plans_under_way.h), our own stays until a later call: a layer that guesses between forwards reads it.
  void share(Sequence& s, std::int64_t positions, bool only_fresh, std::span<Sequence* const> running = {});
  // The sequence has fewer tokens than before: releases the pages behind its end; its last token is computed again. A partly used page that others
  // share is left alone, and its rows are computed again into a new page. `whole_pages`: so is every partly used page, since the cache also has
  // state per page.
  void truncate(Sequence& s, bool whole_pages = false);
  // Releases all its pages.
  void release(Sequence& s);
  // Removes the sequence's pages from position `from` on from the prefix cache (invalid entries).
  void forget(const Sequence& s, std::int64_t from);
  // Empties the prefix cache, or removes all pages of some weights from it.
  void reset() { cache_.reset(); }
  void forget_weights(std::uint64_t weights) { cache_.forget_weights(weights); }

  std::int64_t pages_for(std::int64_t positions) const { return (positions + options_.page_size - 1) / options_.page_size; }
  // How many pages the sequence, or several, still need for their known tokens.
  std::int64_t missing(const Sequence& s) const;
  std::int64_t missing(std::span<Sequence* const> sequences) const;
  std::int64_t available() const { return pages_.free_pages() + cache_.idle(); }
  // How many pages would become free if `s` released its own.
  std::int64_t alone_with(const Sequence& s) const;
  const PageAllocator& allocator() const { return pages_; }
  const PrefixCache& prefix_cache() const { return cache_; }

 private:
  std::int32_t obtain();
  void match_kept(Sequence& s, std::int64_t most);

  EngineOptions options_;
  EngineCounters& counters_;
  PageAllocator pages_;
  PrefixCache cache_;
};

}  // namespace lockstep
