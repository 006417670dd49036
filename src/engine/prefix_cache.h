// Finds full pages of the cache that a new sequence can share. Pages form trees, each found by the XXH3 of all tokens up to its end; a match is
// accepted only if the tokens themselves are equal, page by page from the beginning. Each pair of model (weights and adapter) and owner has a tree of
// its own. The cache is one user of each of its pages. A page without another user is idle; idle pages are freed least recently used first, and a
// page before the one it continues, so whoever holds a page holds all pages before it. A page may be inserted before the forward that fills it has
// run, if every reader is in that forward or a later one. Knows page numbers, not their contents. Used by one thread at a time.
//   cache.match(root, tokens, most, chain, pages); cache.insert(chain, page_tokens, page);
#pragma once
#include <cstdint>
#include <set>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/page_allocator.h"

namespace lockstep {

class PrefixCache {
 public:
  PrefixCache(PageAllocator& pages, std::int64_t page_size);

  // The root of a tree: identities of weights and adapter (WeightSet::identity; adapter 0: none), and Request::prefix_owner.
  struct Root {
    std::uint64_t weights = 0, adapter = 0, owner = 0;
    bool operator==(const Root&) const = default;
  };

  // A sequence's position in a tree: its root, the number of pages, and the last of them (-1: none).
  struct Chain {
    Root root = {};
    std::int64_t pages = 0;
    std::int32_t last = -1;
    std::uint64_t hash = 0;
  };
  // Removes all pages, or all of some weights with every adapter; they are never found again.
  void reset();
  void forget_weights(std::uint64_t weights);
  // The longest run of known pages under `root` that begins `tokens`, at most `most` pages: appended to `pages`, one
  // user more each. `chain` becomes the place after them.
  void match(const Root& root, std::span<const std::int32_t> tokens, std::int64_t most, Chain& chain, std::vector<std::int32_t>& pages);
  enum class Insertion {
    fresh,    // entered; chain moves on
    known,    // another page holds the same tokens after the same chain: `page` becomes that one, one user more; chain
              // moves on
    refused,  // the hash belongs to other tokens; nothing changed
  };
  // Enters `page`, which the caller holds and which holds `tokens` (page_size of them), after `chain`.
  // With `only_fresh`, a known page is reported and nothing changes.
  Insertion insert(Chain& chain, std::span<const std::int32_t> tokens, std::int32_t& page, bool only_fresh = false);

  // The chain after its first `pages` pages, all of which the caller holds.
  void truncate(Chain& chain, std::int64_t pages) const;

  // Releases one use of a page, whether or not it is in the cache.
  void release(std::int32_t page);
  // Frees the least recently used idle page; false when there is none.
  bool evict();
  std::int64_t idle() const { return idle_; }
  std::int64_t entries() const { return static_cast<std::int64_t>(by_hash_.size()); }
  bool holds(std::int32_t page) const { return entry(page).held; }
  // Removes a page and all that continue it from the tree, because their contents are invalid.
  void forget(std::int32_t page);

 private:
  struct Entry {
    bool held = false;
    std::int32_t parent = -1, children = 0;
    std::uint64_t hash = 0, last_use = 0;
    Root root = {};
  };
  Entry& entry(std::int32_t page) { return entries_[static_cast<std::size_t>(page)]; }
  const Entry& entry(std::int32_t page) const { return entries_[static_cast<std::size_t>(page)]; }
  std::int32_t find(const Chain& chain, std::uint64_t hash, std::span<const std::int32_t> tokens, bool& taken) const;
  std::uint64_t next_hash(const Chain& chain, std::span<const std::int32_t> tokens) const;
  void acquire(std::int32_t page);
  void remove(std::int32_t page);

  PageAllocator& pages_;
  std::int64_t page_size_, idle_ = 0;
  std::uint64_t clock_ = 0;
  std::vector<Entry> entries_;        // by page
  std::vector<std::int32_t> tokens_;  // page_size a page
  std::unordered_map<std::uint64_t, std::int32_t> by_hash_;
  std::set<std::pair<std::uint64_t, std::int32_t>> idle_leaves_;  // (last use, page): idle, continued by no page
};

}  // namespace lockstep
