// The bytes of each token of a tokenizer, as a trie, so that a mask visits each common prefix once.
//   auto tokens = TokenBytes::of(tokenizer, end_tokens);
// Special tokens have no text here; end tokens are listed apart. Immutable, except for the masks that grammars over these tokens
// share (token_walk.h); any thread.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "text/tokenizer/tokenizer.h"

namespace lockstep {

class MaskStore;

class TokenBytes {
 public:
  static constexpr std::size_t kMaskBytes = std::size_t{64} << 20;  // of all grammars' masks
  // invalid_argument when `end_tokens` is empty or names no token: no text could end.
  static std::shared_ptr<const TokenBytes> of(const Tokenizer& tokenizer, std::span<const std::int32_t> end_tokens, std::size_t mask_bytes = kMaskBytes);
  // By id; an empty text is a token that is never allowed.
  TokenBytes(std::vector<std::string> bytes, std::vector<std::int32_t> end_tokens, std::size_t mask_bytes = kMaskBytes);
  ~TokenBytes();

  // The tree in the order of a walk from its root, node 0: children follow their node, `end` is the next that is not
  // below.
  struct Node {
    std::uint32_t end = 0;
    std::uint32_t tokens = 0;  // its tokens in order(): up to the next node's
    std::uint16_t depth = 0;
    std::uint8_t byte = 0;
  };
  const std::vector<Node>& nodes() const { return nodes_; }  // and one more at the end
  const std::vector<std::int32_t>& order() const { return order_; }

  std::int32_t size() const { return static_cast<std::int32_t>(bytes_.size()); }
  std::size_t words() const { return (bytes_.size() + 31) / 32; }
  const std::string& bytes(std::int32_t token) const { return bytes_[static_cast<std::size_t>(token)]; }
  bool is_end(std::int32_t token) const;
  const std::vector<std::int32_t>& end_tokens() const { return end_tokens_; }
  std::size_t longest() const { return longest_; }
  MaskStore& masks() const { return *masks_; }

 private:
  std::vector<std::string> bytes_;
  std::vector<std::int32_t> end_tokens_;
  std::vector<Node> nodes_;
  std::vector<std::int32_t> order_;
  std::size_t longest_ = 0;
  const std::unique_ptr<MaskStore> masks_;
};

}  // namespace lockstep
