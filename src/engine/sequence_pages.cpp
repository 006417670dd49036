#include "engine/sequence_pages.h"

#include <algorithm>

namespace lockstep {

SequencePages::SequencePages(const EngineOptions& options, std::int64_t pages, EngineCounters& counters)
    : options_(options), counters_(counters), pages_(pages), cache_(pages_, options.page_size) {}

void SequencePages::match(Sequence& s, std::uint64_t weights) {
  s.chain = {{weights, s.adapter ? s.adapter->identity : 0, s.prefix_owner}};
  // The last known token is always computed: its row gives the next one. So is the one before where the model's layer needs its state at once.
  const std::int64_t most = std::max<std::int64_t>(0, s.known() - (s.begins_layer_cycle() ? 2 : 1));
  if (options_.prefix_cache && s.pace.cached_pages > 0)
    cache_.match(s.chain.root, s.tokens, std::min(s.pace.cached_pages, most / options_.page_size), s.chain, s.pages);
  s.computed = s.begin = static_cast<std::int64_t>(s.pages.size()) * options_.page_size;
  if (s.reads_kept && s.pace.cached_pages == 0) match_kept(s, most / options_.page_size);
}

// At most so many pages. A score needs the row of its position, which no page of the cache has.
void SequencePages::match_kept(Sequence& s, std::int64_t most) {
  KeptForwards& forwards = *options_.kept_forwards;
  const KeptForwards::Root root{s.chain.root.weights, s.chain.root.adapter, s.chain.root.owner};
  KeptPrompt& kept = s.kept_prompt;
  const auto find = [&](std::int64_t pages) {
    kept.pieces.clear();
    return forwards.find(root, s.tokens, 0, pages * options_.page_size, kept.pieces);
  };
  cache_.match(s.chain.root, s.tokens, most, s.chain, s.pages);
  // What is found of a text is found of its beginnings too.
  std::int64_t found = 0, absent = std::ssize(s.pages) + 1;
  for (std::int64_t pages = absent - 1; absent - found > 1; pages = (found + absent) / 2) (find(pages) ? found : absent) = pages;
  for (; std::ssize(s.pages) > found; s.pages.pop_back()) cache_.release(s.pages.back());
  cache_.truncate(s.chain, found);
  if (found == 0 || !find(found)) kept.pieces.clear();
  kept.end = found * options_.page_size;
}

std::int32_t SequencePages::obtain() {
  const std::int32_t page = pages_.allocate();
  if (page >= 0 || !cache_.evict()) return page;
  ++counters_.evictions;
  return pages_.allocate();
}

std::int64_t SequencePages::grow(Sequence& s, std::int64_t positions) {
  for (std::int64_t wanted = pages_for(positions); static_cast<std::int64_t>(s.pages.size()) < wanted;) {
    const std::int32_t page = obtain();
    if (page < 0) break;
    s.pages.push_back(page);
  }
  return static_cast<std::int64_t>(s.pages.size()) * options_.page_size;
}

namespace {
// Whether the page, which holds the positions up to `end`, is one that the plan of a sequence under way fills.
bool is_to_be_filled(std::int32_t page, std::size_t at, std::int64_t end, std::span<Sequence* const> running) {
  return std::any_of(running.begin(), running.end(),
                     [&](const Sequence* r) { return r->under_way && r->computed < end && at < r->pages.size() && r->pages[at] == page; });
}
}  // namespace

void SequencePages::share(Sequence& s, std::int64_t positions, bool only_fresh, std::span<Sequence* const> running) {
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
        if (is_to_be_filled(page, at, s.chain.pages * options_.page_size, running)) {
          cache_.truncate(s.chain, s.chain.pages - 1);
          return cache_.release(page);
        }
        cache_.release(s.pages[at]);
        s.pages[at] = page;
        break;
      case PrefixCache::Insertion::refused:
        s.shares = false;
    }
  }
}

void SequencePages::truncate(Sequence& s, bool whole_pages) {
  std::int64_t computed = std::min(s.computed, s.known() - 1);
  if (const auto page = static_cast<std::size_t>(computed / options_.page_size);
      computed % options_.page_size != 0 && computed < s.computed && (whole_pages || pages_.users(s.pages[page]) > 1))
    computed -= computed % options_.page_size;
  if (s.next_is_kept()) s.kept_prompt = {};  // it has no pages behind `computed` any more
  for (; static_cast<std::int64_t>(s.pages.size()) > pages_for(computed); s.pages.pop_back()) cache_.release(s.pages.back());
  cache_.truncate(s.chain, computed / options_.page_size);
  s.computed = computed;
  s.begin = std::min(s.begin, computed);
}

void SequencePages::release(Sequence& s) {
  // Last page first, so that the prefix cache gives up the end of a text before its beginning.
  for (std::size_t i = s.pages.size(); i-- > 0;) cache_.release(s.pages[i]);
  s.pages.clear();
  s.computed = s.begin = 0;
  s.chain = {};
  s.shares = true;
  s.mixed_versions = false;
  s.kept_prompt = {};
}

void SequencePages::forget(const Sequence& s, std::int64_t from) {
  for (auto i = static_cast<std::size_t>(std::min(from / options_.page_size, static_cast<std::int64_t>(s.pages.size()))); i < s.pages.size(); ++i)
    cache_.forget(s.pages[i]);
}

std::int64_t SequencePages::missing(const Sequence& s) const {
  return std::max<std::int64_t>(0, pages_for(s.known()) - static_cast<std::int64_t>(s.pages.size()));
}

std::int64_t SequencePages::missing(std::span<Sequence* const> sequences) const {
  std::int64_t pages = 0;
  for (const Sequence* s : sequences) pages += missing(*s);
  return pages;
}

std::int64_t SequencePages::alone_with(const Sequence& s) const {
  std::int64_t pages = 0;
  for (const std::int32_t page : s.pages) pages += pages_.users(page) - cache_.holds(page) == 1;
  return pages;
}

}  // namespace lockstep
