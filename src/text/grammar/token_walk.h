// Computes which tokens a machine accepts from a frame. The tokens that end within the frame's own rule (and rules it calls)
// depend on that frame alone: they are computed once and cached. Where the rule ends inside a token, the frames below continue
// from that node of the trie, each time anew: few tokens do that. All machines over the same tokens share one MaskStore, of bounded size.
// Thread rule: MaskStore and MaskCache any thread (a lock); the functions one thread at a time.
#pragma once
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "text/grammar/stacks.h"
#include "text/grammar/token_bytes.h"

namespace lockstep {

struct LocalMask {
  std::vector<std::uint32_t> words;  // of many tokens,
  std::vector<std::int32_t> tokens;  // or few of them
  std::vector<std::uint32_t> exits;  // nodes of the tree at which the frame's rule may end, with tokens below them
  std::size_t bytes() const { return sizeof(*this) + 160 + 4 * (words.size() + tokens.size() + exits.size()); }
};

// A cache of masks that drops the least recently used: a client whose grammar visits many states can neither fill memory nor drop masks that others
// use all the time. Masks of a destroyed machine age out.
class MaskStore {
 public:
  struct Key {
    std::uint64_t machine;  // of new_machine()
    std::int32_t state, depth;
    std::int32_t need, room;  // of the count, as far as one token can tell
    bool operator==(const Key&) const = default;
  };

  explicit MaskStore(std::size_t most_bytes) : most_(most_bytes) {}
  std::uint64_t new_machine();
  std::shared_ptr<const LocalMask> find(const Key& key);  // null: none
  void put(const Key& key, std::shared_ptr<const LocalMask> mask);
  std::size_t bytes() const;

 private:
  struct KeyHash {
    std::size_t operator()(const Key& k) const;
  };
  struct Entry {
    Key key;
    std::shared_ptr<const LocalMask> mask;
  };
  using Entries = std::list<Entry>;  // the last used first
  void drop(Entries::iterator entry);

  const std::size_t most_;
  mutable std::mutex mutex_;  // all below
  Entries entries_;
  std::unordered_map<Key, Entries::iterator, KeyHash> places_;
  std::size_t bytes_ = 0;
  std::uint64_t machines_ = 0;
};

class MaskCache {
 public:
  MaskCache(const Machine& machine, const TokenBytes& tokens) : machine_(machine), tokens_(tokens), id_(tokens.masks().new_machine()) {}
  std::shared_ptr<const LocalMask> of(const Stacks::Frame& frame) const;
  // Sets the bits of all tokens that may follow a stack, end tokens apart.
  void allowed(Stacks& stacks, std::int32_t top, std::span<std::uint32_t> words) const;

 private:
  MaskStore::Key key_of(const Stacks::Frame& frame) const;
  LocalMask find(const Stacks::Frame& frame) const;
  template <class OnToken, class OnNode>
  void walk(Stacks& stacks, std::int32_t top, std::uint32_t node, const OnToken& on_token, const OnNode& on_node) const;

  const Machine& machine_;
  const TokenBytes& tokens_;
  const std::uint64_t id_;
};

}  // namespace lockstep
