// Collects the masks of allowed tokens for the rows that a step samples: after a request's last token, and after each guessed token behind it.
// Used by one thread at a time.
//   ask_mask(s, vocabulary); MasksAhead masks(s, vocabulary); while (masks.allows(token) && masks.accept(token)) ...;
#pragma once
#include "engine/sequence.h"

namespace lockstep {

// Puts the next token's mask at the start of Sequence::mask, once per token. An exception of the constraint is stored in
// Sequence::constraint_error, and nothing is allowed.
void ask_mask(Sequence& s, std::int64_t vocabulary);

// Advances the constraint along draft tokens, and restores it in the destructor. Sequence::mask then has a mask for the next token and one behind
// each draft token. Without a constraint everything is allowed and there are no masks. Settles what was accepted before.
class MasksAhead {
 public:
  MasksAhead(Sequence& s, std::int64_t vocabulary);
  ~MasksAhead();
  MasksAhead(const MasksAhead&) = delete;
  MasksAhead& operator=(const MasksAhead&) = delete;

  // After the tokens that were accepted here.
  bool allows(std::int32_t token) const;
  std::int32_t only_token() const;  // -1: several, none, or no constraint
  // False: the constraint threw at it, and it counts as not accepted.
  bool accept(std::int32_t token);

 private:
  std::span<const std::uint32_t> last_mask() const { return std::span<const std::uint32_t>(sequence_.mask).last(words_); }

  Sequence& sequence_;
  std::size_t words_;
  bool moved_ = false;
};

}  // namespace lockstep
