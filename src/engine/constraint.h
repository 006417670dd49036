// A constraint on what a request may generate: the set of tokens allowed next, which changes with each generated token. It knows no engine, and the
// engine knows no grammar.
//   request.sampling.constraint = make_constraint(grammar);  // serving/grammars.h
// The engine calls it on its own thread: `allowed`, then `accept`, once for each sampled token, and not again when a preempted request is recomputed
// or a forward is repeated after an error. truncate() takes the last tokens back; after it allowed() may be called again, and accept() without it for
// tokens whose mask is known. Draft tokens are accepted and taken back the same way. An exception ends its own request with FinishReason::error. Each
// request has its own constraint, and so has each of several samples of one prompt. An answer that goes on (Request::said) is accepted first, without
// calls of allowed.
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
  // An allowed token, sampled or of a draft.
  virtual void accept(std::int32_t token) = 0;
  // Restores the state after `count` accepted tokens: at most as many as there are, at least as many as at the last settle().
  virtual void truncate(std::int64_t count) = 0;
  // The tokens accepted so far will not be taken back. Called now and then, so that truncate() has little to redo.
  virtual void settle() {}
};

}  // namespace lockstep
