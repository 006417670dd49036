#include "engine/prefix_cache.h"

#include <algorithm>

#include "base/hash.h"

namespace lockstep {

PrefixCache::PrefixCache(PageAllocator& pages, std::int64_t page_size)
    : pages_(pages), page_size_(page_size), entries_(static_cast<std::size_t>(pages.total())), tokens_(static_cast<std::size_t>(pages.total() * page_size)) {}

void PrefixCache::reset() {
  for (const auto& [hash, page] : by_hash_) {
    entry(page) = Entry();
    pages_.release(page);
  }
  by_hash_.clear();
  idle_leaves_.clear();
  idle_ = 0;
}

void PrefixCache::forget_weights(std::uint64_t weights) {
  for (auto it = by_hash_.begin(); it != by_hash_.end();) {
    const std::int32_t page = it->second;
    if (entry(page).root.weights != weights) {
      ++it;
      continue;
    }
    it = by_hash_.erase(it);
    if (pages_.users(page) == 1) {
      --idle_;
      idle_leaves_.erase({entry(page).last_use, page});
    }
    entry(page) = Entry();
    pages_.release(page);
  }
}

std::uint64_t PrefixCache::next_hash(const Chain& chain, std::span<const std::int32_t> tokens) const {
  const std::uint64_t root[] = {chain.root.weights, chain.root.adapter, chain.root.owner};
  return xxh3(tokens.data(), tokens.size_bytes(), chain.pages == 0 ? xxh3(root, sizeof(root)) : chain.hash);
}

std::int32_t PrefixCache::find(const Chain& chain, std::uint64_t hash, std::span<const std::int32_t> tokens, bool& taken) const {
  const auto it = by_hash_.find(hash);
  taken = it != by_hash_.end();
  if (!taken || entry(it->second).parent != chain.last || entry(it->second).root != chain.root) return -1;
  return std::equal(tokens.begin(), tokens.end(), tokens_.begin() + it->second * page_size_) ? it->second : -1;
}

void PrefixCache::acquire(std::int32_t page) {
  if (pages_.users(page) == 1) {
    --idle_;
    idle_leaves_.erase({entry(page).last_use, page});
  }
  pages_.retain(page);
}

void PrefixCache::match(const Root& root, std::span<const std::int32_t> tokens, std::int64_t most, Chain& chain, std::vector<std::int32_t>& pages) {
  chain = {root};
  while (chain.pages < most && (chain.pages + 1) * page_size_ <= static_cast<std::int64_t>(tokens.size())) {
    const auto part = tokens.subspan(static_cast<std::size_t>(chain.pages * page_size_), static_cast<std::size_t>(page_size_));
    const std::uint64_t hash = next_hash(chain, part);
    bool taken;
    const std::int32_t page = find(chain, hash, part, taken);
    if (page < 0) return;
    acquire(page);
    pages.push_back(page);
    chain = {root, chain.pages + 1, page, hash};
  }
}

PrefixCache::Insertion PrefixCache::insert(Chain& chain, std::span<const std::int32_t> tokens, std::int32_t& page, bool only_fresh) {
  const std::uint64_t hash = next_hash(chain, tokens);
  bool taken;
  const std::int32_t known = find(chain, hash, tokens, taken);
  if (known >= 0) {
    if (only_fresh) return Insertion::known;
    acquire(known);
    page = known;
    chain = {chain.root, chain.pages + 1, known, hash};
    return Insertion::known;
  }
  if (taken || holds(page)) return Insertion::refused;
  pages_.retain(page);
  entry(page) = {true, chain.last, 0, hash, 0, chain.root};
  std::copy(tokens.begin(), tokens.end(), tokens_.begin() + page * page_size_);
  by_hash_[hash] = page;
  if (chain.last >= 0) ++entry(chain.last).children;
  chain = {chain.root, chain.pages + 1, page, hash};
  return Insertion::fresh;
}

void PrefixCache::truncate(Chain& chain, std::int64_t pages) const {
  while (chain.pages > pages) {
    chain.last = entry(chain.last).parent;
    chain.hash = chain.last < 0 ? 0 : entry(chain.last).hash;
    --chain.pages;
  }
}

void PrefixCache::release(std::int32_t page) {
  if (pages_.release(page) != 1 || !holds(page)) return;
  Entry& e = entry(page);
  e.last_use = ++clock_;
  ++idle_;
  if (e.children == 0) idle_leaves_.insert({e.last_use, page});
}

// Takes a page without continuation out of the tree; its other users keep it.
void PrefixCache::remove(std::int32_t page) {
  const Entry e = entry(page);
  by_hash_.erase(e.hash);
  entry(page) = Entry();
  if (pages_.users(page) == 1) {
    --idle_;
    idle_leaves_.erase({e.last_use, page});
  }
  pages_.release(page);
  if (e.parent < 0) return;
  Entry& parent = entry(e.parent);
  if (--parent.children == 0 && pages_.users(e.parent) == 1) idle_leaves_.insert({parent.last_use, e.parent});
}

bool PrefixCache::evict() {
  if (idle_leaves_.empty()) return false;
  remove(idle_leaves_.begin()->second);
  return true;
}

void PrefixCache::forget(std::int32_t page) {
  if (!holds(page)) return;
  for (std::int32_t child = 0; entry(page).children > 0 && child < static_cast<std::int32_t>(entries_.size()); ++child)
    if (holds(child) && entry(child).parent == page) forget(child);
  remove(page);
}

}  // namespace lockstep
