#include "serving/token_constraints.h"

#include <algorithm>

namespace lockstep {
namespace {
void allow_all(std::span<std::uint32_t> words, std::int64_t vocabulary) {
  std::fill(words.begin(), words.end(), ~std::uint32_t{0});
  if (vocabulary % 32 != 0) words.back() = (std::uint32_t{1} << (vocabulary % 32)) - 1;
}

// Unless nothing else is left.
void forbid(std::span<std::uint32_t> words, const std::vector<std::int32_t>& tokens) {
  const std::vector<std::uint32_t> before(words.begin(), words.end());
  for (const std::int32_t token : tokens) words[static_cast<std::size_t>(token / 32)] &= ~(std::uint32_t{1} << (token % 32));
  if (std::all_of(words.begin(), words.end(), [](std::uint32_t word) { return word == 0; })) std::copy(before.begin(), before.end(), words.begin());
}
}  // namespace

void MinTokens::allowed(std::span<std::uint32_t> words) {
  if (inner_) inner_->allowed(words);
  else allow_all(words, vocabulary_);
  if (left_ > 0) forbid(words, end_tokens_);
}

void MinTokens::accept(std::int32_t token) {
  --left_;
  if (inner_) inner_->accept(token);
}

void MinTokens::truncate(std::int64_t count) {
  left_ = count_ - count;
  if (inner_) inner_->truncate(count);
}

void MinTokens::settle() {
  if (inner_) inner_->settle();
}

void AfterReasoning::allowed(std::span<std::uint32_t> words) {
  if (!reasoning_) return inner_->allowed(words);
  allow_all(words, vocabulary_);
  forbid(words, end_tokens_);
}

void AfterReasoning::accept(std::int32_t token) {
  if (!reasoning_) return inner_->accept(token);
  reasoned_.push_back(token);
  tail_ += tokenizer_.token_bytes(token);
  if (tail_.find(marker_) != std::string::npos) reasoning_ = false;
  else if (tail_.size() > marker_.size()) tail_.erase(0, tail_.size() - marker_.size());
}

void AfterReasoning::truncate(std::int64_t count) {
  const auto reasoned = static_cast<std::int64_t>(reasoned_.size());
  if (!reasoning_) inner_->truncate(std::max<std::int64_t>(0, count - reasoned));
  if (count >= reasoned) return;
  reasoning_ = true;
  reasoned_.resize(static_cast<std::size_t>(count));
  tail_.clear();
  for (std::size_t i = reasoned_.size(); i-- > 0 && tail_.size() < marker_.size();) tail_.insert(0, tokenizer_.token_bytes(reasoned_[i]));
  if (tail_.size() > marker_.size()) tail_.erase(0, tail_.size() - marker_.size());
}

}  // namespace lockstep
