// Inputs and outputs of a sampling launch that only some rows have: adjusted logits, masks, the likeliest tokens. Other rows have the same bits as
// without it, and nothing is uploaded or launched for them. Used by one thread at a time.
//   SamplingRows rows(backend, sampled, logits, leaves); rows.attach(sample, kept); launch(sample); rows.likeliest(ids,
//   logprobs, 0);
#pragma once
#include <span>

#include "engine/sequence.h"
#include "kernels/backend.h"
#include "kernels/sample/sample.h"

namespace lockstep {

// A row whose next token is drawn: that of position `known` of the sequence, given the tokens before it. Of a sequence's rows in one
// step this is the `nth`. `top`: the likeliest tokens are told, too.
struct SampledRow {
  Sequence* sequence = nullptr;
  std::int64_t known = 0, nth = 0;
  bool top = false;
  std::int64_t kept = -1;  // where its kept set is told, of the rows of Column::kept; -1: it is not
};

class SamplingRows {
 public:
  // `sampled[i]` samples from row i of `logits`. A sequence's mask has the words of each of its rows, one after another. The buffers live
  // as long as this object.
  SamplingRows(Backend& backend, std::span<const SampledRow> sampled, const View& logits, int maximum_leaves);
  // Launches what adjusts the logits and names adjusted rows and masks in `sample`; `kept`: of all rows of Column::kept, or none.
  void attach(Sample& sample, const View& kept);
  // The likeliest tokens of rows that tell them, in order, into the rows from `begin` on; returns how many.
  std::int64_t likeliest(const View& id, const View& logprob, std::int64_t begin);

 private:
  View upload(const std::vector<std::int32_t>& values, std::int64_t cols = 1);
  View upload(const std::vector<float>& values);
  void adjust(Sample& sample);
  void mask();

  Backend& backend_;
  std::span<const SampledRow> sampled_;
  View logits_;
  int maximum_leaves_;
  std::vector<Buffer> buffers_;
  View mask_{}, mask_row_{};
  std::vector<std::int32_t> mask_rows_;
};

}  // namespace lockstep
