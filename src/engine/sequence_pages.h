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

  // `s` gets the pages that are known to begin its text under `weights` (WeightSet::identity), and counts as computed so far.
  void match(Sequence& s, std::uint64_t weights);
  // Pages for so many positions of `s`, as far as there are any. Returns how many positions its pages have, which may be more.
  std::int64_t grow(Sequence& s, std::int64_t positions);
  // Enters the full pages of the first `positions` positions. Before the forward only pages that nobody has entered yet;
  // after it, a page that another sequence entered takes the place of our own, whose bits are the same.
  void share(Sequence& s, std::int64_t positions, bool only_fresh);
  // The sequence has lost tokens at its end: the pages behind it go back, and what it computes next is its last token at the latest. A page that others
  // use stays as it is, and its beginning is computed again into one of its own. `whole_pages`: so it is with every page that is cut, for what stands in the
  // cache a page and not a position.
  void truncate(Sequence& s, bool whole_pages = false);
  // All its pages go back, and it stands in the cache no more.
  void release(Sequence& s);
  // The prefix cache forgets the sequence's pages from position `from` on (bad entries).
  void forget(const Sequence& s, std::int64_t from);
  // The prefix cache forgets everything, or all of some weights.
  void reset() { cache_.reset(); }
  void forget_weights(std::uint64_t weights) { cache_.forget_weights(weights); }

  std::int64_t pages_for(std::int64_t positions) const { return (positions + options_.page_size - 1) / options_.page_size; }
  // Pages for known tokens that the sequence, or several, have not got.
  std::int64_t missing(const Sequence& s) const;
  std::int64_t missing(std::span<Sequence* const> sequences) const;
  std::int64_t available() const { return pages_.free_pages() + cache_.idle(); }
  // Pages of `s` that would be available if it gave them back.
  std::int64_t alone_with(const Sequence& s) const;
  const PageAllocator& allocator() const { return pages_; }
  const PrefixCache& prefix_cache() const { return cache_; }

 private:
  std::int32_t obtain();

  EngineOptions options_;
  EngineCounters& counters_;
  PageAllocator pages_;
  PrefixCache cache_;
};

}  // namespace lockstep
