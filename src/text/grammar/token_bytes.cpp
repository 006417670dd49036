#include "text/grammar/token_bytes.h"

#include <algorithm>

#include "base/error.h"
#include "text/grammar/token_walk.h"

namespace lockstep {

namespace {
// A longer token is never allowed: the tree's depth is one of its costs, and no vocabulary has one.
constexpr std::size_t kMaxGrammarTokenBytes = 1024;
}  // namespace

std::shared_ptr<const TokenBytes> TokenBytes::of(const Tokenizer& tokenizer, std::span<const std::int32_t> end_tokens, std::size_t mask_bytes) {
  std::vector<std::string> bytes(static_cast<std::size_t>(tokenizer.vocab_size()));
  for (std::int32_t id = 0; id < tokenizer.vocab_size(); ++id)
    if (!tokenizer.is_special(id)) bytes[static_cast<std::size_t>(id)] = tokenizer.token_bytes(id);
  return std::make_shared<const TokenBytes>(std::move(bytes), std::vector<std::int32_t>(end_tokens.begin(), end_tokens.end()), mask_bytes);
}

TokenBytes::~TokenBytes() = default;

TokenBytes::TokenBytes(std::vector<std::string> bytes, std::vector<std::int32_t> end_tokens, std::size_t mask_bytes)
    : bytes_(std::move(bytes)), end_tokens_(std::move(end_tokens)), masks_(std::make_unique<MaskStore>(mask_bytes)) {
  std::sort(end_tokens_.begin(), end_tokens_.end());
  if (end_tokens_.empty()) fail(ErrorCode::invalid_argument, "end_tokens is empty, allowed is at least one token that ends a text");
  for (std::int32_t end : end_tokens_) {
    if (end < 0 || end >= size()) fail(ErrorCode::invalid_argument, "end_tokens has {}, allowed are token ids from 0 to {}", end, size() - 1);
    bytes_[static_cast<std::size_t>(end)].clear();
  }
  for (std::int32_t id = 0; id < size(); ++id) {
    if (bytes_[static_cast<std::size_t>(id)].size() > kMaxGrammarTokenBytes) bytes_[static_cast<std::size_t>(id)].clear();
    if (!bytes_[static_cast<std::size_t>(id)].empty()) order_.push_back(id);
  }
  std::sort(order_.begin(), order_.end(), [this](std::int32_t a, std::int32_t b) {
    const int c = this->bytes(a).compare(this->bytes(b));
    return c != 0 ? c < 0 : a < b;
  });
  // Sorted texts are the walk: each adds the nodes that it does not share with the one before.
  std::vector<std::uint32_t> path{0};
  nodes_.push_back({});
  const auto close = [&](std::size_t depth) {
    for (; path.size() > depth + 1; path.pop_back()) nodes_[path.back()].end = static_cast<std::uint32_t>(nodes_.size());
  };
  std::string_view before;
  for (std::size_t i = 0; i < order_.size(); ++i) {
    const std::string_view text = this->bytes(order_[i]);
    longest_ = std::max(longest_, text.size());
    const auto common = static_cast<std::size_t>(std::mismatch(text.begin(), text.end(), before.begin(), before.end()).first - text.begin());
    close(common);
    for (std::size_t d = common; d < text.size(); ++d) {
      path.push_back(static_cast<std::uint32_t>(nodes_.size()));
      nodes_.push_back({0, static_cast<std::uint32_t>(i), static_cast<std::uint16_t>(d + 1), static_cast<std::uint8_t>(text[d])});
    }
    before = text;
  }
  close(0);
  nodes_[0].end = static_cast<std::uint32_t>(nodes_.size());
  nodes_.push_back({static_cast<std::uint32_t>(nodes_.size()) + 1, static_cast<std::uint32_t>(order_.size()), 0, 0});
}

bool TokenBytes::is_end(std::int32_t token) const { return std::binary_search(end_tokens_.begin(), end_tokens_.end(), token); }

}  // namespace lockstep
