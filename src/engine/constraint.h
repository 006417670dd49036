// What a request may say next: a set of tokens that changes with each token it says. The engine knows no grammar, and a
// constraint no engine.
// Thread rule: the engine calls it on its own thread, `allowed` then `accept` once for each token it samples (a request
// that is put back, or whose forward runs again after an error, is not asked again). One that throws ends its own
// request with FinishReason::error. Each request, also each of several samples of one prompt, has a constraint of its
// own. An answer that goes on (Request::said) is accepted first, without allowed. Tokens may be taken back: truncate, after which allowed may come again, and accept without it where it had come. Tokens that are
// guessed ahead are accepted and taken back so.
//   request.sampling.constraint = std::make_shared<MyConstraint>();
#pragma once
#include <cstdint>
#include <span>

namespace lockstep {

class TokenConstraint {
 public:
  virtual ~TokenConstraint() = default;
  // Sets bit t % 32 of word t / 32 for each token t that may come next. Words come zeroed; there are
  // (vocabulary + 31) / 32 of them. A request of which nothing is allowed ends with FinishReason::error.
  virtual void allowed(std::span<std::uint32_t> words) = 0;
  // The token that was sampled or guessed, one of those allowed.
  virtual void accept(std::int32_t token) = 0;
  // Becomes what it was when `count` tokens had been accepted: no more than there are, no fewer than at the last settle().
  virtual void truncate(std::int64_t count) = 0;
  // What has been accepted stays. Whoever may take tokens back says so now and then, so that little need be done again.
  virtual void settle() {}
};

}  // namespace lockstep
