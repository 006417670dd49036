// Which tokens a machine can say from a frame. The tokens that end within the frame's own rule (and what it calls)
// depend on that frame alone: they are found once and kept. Where the rule ends inside a token, the frames below go on
// from that place of the tree, each time anew: few tokens do that. Thread rule: MaskCache any thread (a lock); the
// functions one thread at a time.
#pragma once
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
  std::size_t bytes() const { return sizeof(*this) + 4 * (words.size() + tokens.size() + exits.size()); }
};

class MaskCache {
 public:
  static constexpr std::size_t kMaxBytes = std::size_t{64} << 20;
  MaskCache(const Machine& machine, const TokenBytes& tokens) : machine_(machine), tokens_(tokens) {}
  std::shared_ptr<const LocalMask> of(const Stacks::Frame& frame) const;
  // Sets the bits of all tokens that may follow a stack, end tokens apart.
  void allowed(Stacks& stacks, std::int32_t top, std::span<std::uint32_t> words) const;

 private:
  struct Key {
    std::int32_t state, depth;
    std::int32_t need, room;  // of the count, as far as one token can tell
    bool operator==(const Key&) const = default;
  };
  struct KeyHash {
    std::size_t operator()(const Key& k) const;
  };
  Key key_of(const Stacks::Frame& frame) const;
  LocalMask find(const Stacks::Frame& frame) const;
  template <class OnToken, class OnNode>
  void walk(Stacks& stacks, std::int32_t top, std::uint32_t node, const OnToken& on_token, const OnNode& on_node) const;

  const Machine& machine_;
  const TokenBytes& tokens_;
  mutable std::mutex mutex_;
  mutable std::unordered_map<Key, std::shared_ptr<const LocalMask>, KeyHash> masks_;
  mutable std::size_t bytes_ = 0;
};

}  // namespace lockstep
