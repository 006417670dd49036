// Constraints that wrap another constraint: one forbids the end of the answer until it has a number of tokens, one applies the inner constraint only
// after the reasoning has ended. Know token ids and bytes, no grammar. Thread rule of engine/constraint.h.
//   constraint = std::make_shared<MinTokens>(constraint, end_tokens, 20, vocabulary);
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "engine/constraint.h"
#include "text/tokenizer/tokenizer.h"

namespace lockstep {

// No end token among the first `count` tokens, unless nothing else is allowed.
class MinTokens : public TokenConstraint {
 public:
  // `inner` may be null: then everything is allowed.
  MinTokens(std::shared_ptr<TokenConstraint> inner, std::vector<std::int32_t> end_tokens, std::int64_t count, std::int64_t vocabulary)
      : inner_(std::move(inner)), end_tokens_(std::move(end_tokens)), count_(count), left_(count), vocabulary_(vocabulary) {}
  void allowed(std::span<std::uint32_t> words) override;
  void accept(std::int32_t token) override;
  void truncate(std::int64_t count) override;
  void settle() override;

 private:
  std::shared_ptr<TokenConstraint> inner_;
  std::vector<std::int32_t> end_tokens_;
  std::int64_t count_, left_, vocabulary_;
};

// Anything but an end token until the text contains `marker`; from then on what `inner` allows. Text of the same token behind the marker counts as
// reasoning too.
class AfterReasoning : public TokenConstraint {
 public:
  // `tokenizer` outlives this object.
  AfterReasoning(std::shared_ptr<TokenConstraint> inner, const Tokenizer& tokenizer, std::string marker, std::vector<std::int32_t> end_tokens,
                 std::int64_t vocabulary)
      : inner_(std::move(inner)), tokenizer_(tokenizer), marker_(std::move(marker)), end_tokens_(std::move(end_tokens)), vocabulary_(vocabulary) {}
  void allowed(std::span<std::uint32_t> words) override;
  void accept(std::int32_t token) override;
  void truncate(std::int64_t count) override;
  void settle() override { inner_->settle(); }

 private:
  std::shared_ptr<TokenConstraint> inner_;
  const Tokenizer& tokenizer_;
  std::string marker_, tail_;
  std::vector<std::int32_t> reasoned_;  // tokens up to the one that ended the reasoning
  std::vector<std::int32_t> end_tokens_;
  std::int64_t vocabulary_;
  bool reasoning_ = true;
};

}  // namespace lockstep
