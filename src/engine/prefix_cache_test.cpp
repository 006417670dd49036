#include "engine/prefix_cache.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <map>

namespace lockstep {
namespace {

using Tokens = std::vector<std::int32_t>;
constexpr std::int64_t kPage = 2;
constexpr PrefixCache::Root kOne{1, 0};

struct Tree {
  explicit Tree(std::int64_t pages) : allocator(pages), cache(allocator, kPage) {}
  PageAllocator allocator;
  PrefixCache cache;

  // Computes all full pages of a text the way a sequence does; returns the pages it holds.
  std::vector<std::int32_t> compute(const Tokens& tokens, const PrefixCache::Root& root = kOne) {
    std::vector<std::int32_t> pages;
    PrefixCache::Chain chain;
    const auto full = static_cast<std::int64_t>(tokens.size()) / kPage;
    cache.match(root, tokens, full, chain, pages);
    while (chain.pages < full) {
      const std::int32_t own = page();
      if (own < 0) break;
      std::int32_t entered = own;
      const auto part = std::span<const std::int32_t>(tokens).subspan(static_cast<std::size_t>(chain.pages * kPage), kPage);
      EXPECT_EQ(cache.insert(chain, part, entered), PrefixCache::Insertion::fresh);
      pages.push_back(entered);
    }
    return pages;
  }
  std::int32_t page() {
    const std::int32_t page = allocator.allocate();
    return page >= 0 || !cache.evict() ? page : allocator.allocate();
  }
  void release(const std::vector<std::int32_t>& pages) {
    for (std::size_t i = pages.size(); i-- > 0;) cache.release(pages[i]);
  }
};

TEST(PageAllocator, HandsOutEveryPageOnceAndRefusesDoubleRelease) {
  PageAllocator pages(3);
  const std::int32_t a = pages.allocate(), b = pages.allocate(), c = pages.allocate();
  EXPECT_EQ(pages.allocate(), -1);
  EXPECT_NE(a, b);
  EXPECT_NE(b, c);
  pages.retain(b);
  EXPECT_EQ(pages.release(b), 1);
  EXPECT_EQ(pages.free_pages(), 0);
  EXPECT_EQ(pages.release(b), 0);
  EXPECT_EQ(pages.allocate(), b);
  pages.release(a);
  EXPECT_THROW(pages.release(a), std::exception);
  EXPECT_THROW(pages.retain(a), std::exception);
}

TEST(PrefixCache, FindsTheLongestKnownBeginning) {
  Tree tree(8);
  const std::vector<std::int32_t> pages = tree.compute({1, 2, 3, 4, 5, 6});
  std::vector<std::int32_t> hit;
  PrefixCache::Chain chain;
  tree.cache.match(kOne, Tokens{1, 2, 3, 4, 9, 9, 5}, 3, chain, hit);
  EXPECT_EQ(hit, (std::vector<std::int32_t>{pages[0], pages[1]}));
  EXPECT_EQ(tree.allocator.users(pages[0]), 3);
  hit.clear();
  tree.cache.match(kOne, Tokens{1, 2, 3, 4, 5, 6}, 1, chain, hit);  // no more than asked for
  EXPECT_EQ(hit.size(), 1u);
  hit.clear();
  tree.cache.match(kOne, Tokens{3, 4, 5, 6}, 2, chain, hit);  // the same page elsewhere is another text
  EXPECT_TRUE(hit.empty());
}

TEST(PrefixCache, NewWeightsForgetAndOldPagesComeBackWithTheirUsers) {
  Tree tree(4);
  const std::vector<std::int32_t> held = tree.compute({1, 2, 3, 4});
  tree.cache.forget_weights(kOne.weights);
  EXPECT_EQ(tree.cache.entries(), 0);
  std::vector<std::int32_t> hit;
  PrefixCache::Chain chain;
  tree.cache.match(kOne, Tokens{1, 2, 3, 4}, 2, chain, hit);
  EXPECT_TRUE(hit.empty());
  EXPECT_EQ(tree.allocator.free_pages(), 2);
  tree.release(held);
  EXPECT_EQ(tree.allocator.free_pages(), 4);
}

TEST(PrefixCache, ATextIsFoundUnderItsOwnWeightsAndAdapterAlone) {
  Tree tree(8);
  const Tokens text{1, 2, 3, 4};
  const std::vector<PrefixCache::Root> roots{{1, 0}, {1, 7}, {2, 7}};
  std::vector<std::vector<std::int32_t>> pages;
  for (const PrefixCache::Root& root : roots) pages.push_back(tree.compute(text, root));
  EXPECT_EQ(tree.cache.entries(), 6);
  const auto found = [&](const PrefixCache::Root& root) {
    std::vector<std::int32_t> hit;
    PrefixCache::Chain chain;
    tree.cache.match(root, text, 9, chain, hit);
    tree.release(hit);
    return hit;
  };
  for (std::size_t i = 0; i < roots.size(); ++i) EXPECT_EQ(found(roots[i]), pages[i]);
  EXPECT_TRUE(found({2, 0}).empty());
  tree.release(pages[1]);
  tree.cache.forget_weights(1);
  EXPECT_TRUE(found(roots[0]).empty());
  EXPECT_TRUE(found(roots[1]).empty());
  EXPECT_EQ(found(roots[2]), pages[2]);
  EXPECT_EQ(tree.allocator.free_pages(), 4);
  tree.release(pages[0]);
  tree.release(pages[2]);
  EXPECT_EQ(tree.allocator.free_pages() + tree.cache.idle(), 8);
  EXPECT_EQ(tree.cache.idle(), 2);
}

TEST(PrefixCache, ATextIsFoundByItsOwnerAlone) {
  Tree tree(8);
  const Tokens text{1, 2, 3, 4};
  const std::vector<PrefixCache::Root> roots{{1, 7, 1}, {1, 7, 2}};
  std::vector<std::int32_t> hit;
  PrefixCache::Chain chain;
  const std::vector<std::int32_t> pages = tree.compute(text, roots[0]);
  for (const PrefixCache::Root& other : {roots[1], PrefixCache::Root{1, 7}, PrefixCache::Root{1, 1, 7}}) {
    tree.cache.match(other, text, 9, chain, hit);
    EXPECT_TRUE(hit.empty());
  }
  const std::vector<std::int32_t> own = tree.compute(text, roots[1]);  // entered beside it, as fresh
  EXPECT_EQ(tree.cache.entries(), 4);
  tree.cache.match(roots[0], text, 9, chain, hit);
  EXPECT_EQ(hit, pages);
  tree.release(hit);
  tree.release(own);
  tree.release(pages);
  tree.cache.forget_weights(1);
  EXPECT_EQ(tree.allocator.free_pages(), 8);
}

TEST(PrefixCache, EvictsTheLeastRecentlyUsedEndFirst) {
  Tree tree(4);
  tree.release(tree.compute({1, 2, 3, 4}));
  tree.release(tree.compute({5, 6, 7, 8}));
  tree.release(tree.compute({1, 2, 3, 4}));  // used again
  EXPECT_EQ(tree.cache.idle(), 4);
  const auto known = [&](const Tokens& tokens) {
    std::vector<std::int32_t> hit;
    PrefixCache::Chain chain;
    tree.cache.match(kOne, tokens, 9, chain, hit);
    const std::size_t n = hit.size();
    tree.release(hit);
    return n;
  };
  EXPECT_TRUE(tree.cache.evict());
  EXPECT_EQ(known({5, 6, 7, 8}), 1u);
  EXPECT_EQ(known({1, 2, 3, 4}), 2u);
  EXPECT_TRUE(tree.cache.evict());
  EXPECT_TRUE(tree.cache.evict());
  EXPECT_EQ(known({5, 6, 7, 8}), 0u);
  EXPECT_EQ(known({1, 2, 3, 4}), 1u);
  EXPECT_TRUE(tree.cache.evict());
  EXPECT_FALSE(tree.cache.evict());
  EXPECT_EQ(tree.allocator.free_pages(), 4);
}

TEST(PrefixCache, AKnownPageReplacesOurs) {
  Tree tree(4);
  const std::vector<std::int32_t> first = tree.compute({1, 2});
  PrefixCache::Chain chain{kOne};
  std::int32_t own = tree.allocator.allocate(), page = own;
  EXPECT_EQ(tree.cache.insert(chain, Tokens{1, 2}, page, true), PrefixCache::Insertion::known);
  EXPECT_EQ(page, own);
  EXPECT_EQ(chain.pages, 0);
  EXPECT_EQ(tree.cache.insert(chain, Tokens{1, 2}, page), PrefixCache::Insertion::known);
  EXPECT_EQ(page, first[0]);
  EXPECT_EQ(chain.pages, 1);
  tree.cache.release(own);
  tree.release({page});
  tree.release(first);
  EXPECT_EQ(tree.allocator.free_pages() + tree.cache.idle(), 4);
}

TEST(PrefixCache, ForgetsAPageWithAllThatContinueIt) {
  Tree tree(6);
  const std::vector<std::int32_t> a = tree.compute({1, 2, 3, 4, 5, 6}), b = tree.compute({1, 2, 3, 4, 7, 8});
  tree.cache.forget(a[1]);
  EXPECT_EQ(tree.cache.entries(), 1);
  tree.release(a);
  tree.release(b);
  EXPECT_EQ(tree.allocator.free_pages(), 5);
  EXPECT_EQ(tree.cache.idle(), 1);
}

// Random texts of two tokens come and go over few pages: a hit always is the text asked for, and no page is lost.
TEST(PrefixCache, NeverLosesAPageNorLies) {
  rc::check([] {
    Tree tree(*rc::gen::inRange<std::int64_t>(1, 12));
    std::map<std::int32_t, Tokens> filled;  // page -> the text up to its end, as computed
    std::vector<std::vector<std::int32_t>> held;
    const auto operations = *rc::gen::container<std::vector<int>>(rc::gen::inRange(0, 1000));
    for (int op : operations) {
      if (op % 3 == 0 && !held.empty()) {
        const auto at = static_cast<std::size_t>(op) % held.size();
        tree.release(held[at]);
        held.erase(held.begin() + static_cast<std::ptrdiff_t>(at));
      } else if (op % 41 == 1) {
        tree.release([&] {
          std::vector<std::int32_t> all;
          for (const auto& pages : held) all.insert(all.end(), pages.begin(), pages.end());
          return all;
        }());
        held.clear();
        tree.cache.reset();
      } else {
        Tokens tokens(static_cast<std::size_t>(op % 9));
        for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = op >> (i % 10) & 1;
        std::vector<std::int32_t> hit;
        PrefixCache::Chain chain;
        tree.cache.match(kOne, tokens, 9, chain, hit);
        for (std::size_t i = 0; i < hit.size(); ++i)
          RC_ASSERT(filled.at(hit[i]) == Tokens(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>((i + 1) * kPage)));
        tree.release(hit);
        held.push_back(tree.compute(tokens));
        for (std::size_t i = 0; i < held.back().size(); ++i)
          filled[held.back()[i]] = Tokens(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>((i + 1) * kPage));
      }
      std::int64_t in_use = 0;
      std::map<std::int32_t, std::int32_t> users;
      for (const auto& pages : held)
        for (std::int32_t page : pages) ++users[page];
      for (const auto& [page, n] : users) RC_ASSERT(tree.allocator.users(page) == n + tree.cache.holds(page));
      in_use = static_cast<std::int64_t>(users.size());
      RC_ASSERT(tree.allocator.free_pages() + tree.cache.idle() + in_use == tree.allocator.total());
    }
    for (const auto& pages : held) tree.release(pages);
    while (tree.cache.evict()) {
    }
    RC_ASSERT(tree.allocator.free_pages() == tree.allocator.total());
  });
}

}  // namespace
}  // namespace lockstep
