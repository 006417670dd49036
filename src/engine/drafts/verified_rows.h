// The rows of a sampling launch whose tokens are not drawn there. Of rows that need rejection sampling (engine/drafts/verify.h) it copies logits and kept
// sets to the host, decides there, and writes the chosen tokens back; of rows with a given token (Request::given) it writes that one. Both
// log-probabilities are reported as for a sampled token. Other rows have the same bits as without it, and a step without such rows launches and reads
// nothing more. Used by one thread.
//   const VerifiedRows verified(backend, rows, sample); backend.launch(&KernelTable::sample, sample);
#pragma once
#include "engine/drafts/verify.h"
#include "engine/sampling_rows.h"

namespace lockstep {

// A guess that is checked so at the next token of a sequence's nth row of a step; null: none.
const Drafting::Guess* checked_guess(const Sequence& s, std::int64_t nth);

// Kept sets of some rows of a launch, and the laws that these rows are drawn with once it has run.
class LawRows {
 public:
  // `wanted[i]`: row i's is.
  LawRows(Backend& backend, const std::vector<bool>& wanted, std::int64_t vocabulary);
  bool any() const { return count_ > 0; }
  // Before the launch.
  void attach(Sample& sample) const;
  // After it; `temperature`: of all its rows. Laws of rows that are not wanted, or are no numbers, are empty.
  std::vector<TokenLaw> read(const Sample& sample, std::span<const float> temperature) const;

 private:
  Backend& backend_;
  std::vector<std::int32_t> kept_row_;
  std::int32_t count_ = 0;
  Buffer kept_, rows_;
};

class VerifiedRows {
 public:
  // Everything else is attached to `sample`, whose chosen tokens this names. The buffers live as long as this object.
  VerifiedRows(Backend& backend, std::span<const SampledRow> rows, Sample& sample);

 private:
  Buffer chosen_;
};

}  // namespace lockstep
