// What some rows of a sampling launch need beyond their numbers: adjusted logits, masks, the likeliest tokens. Rows
// without any of it cost nothing and keep their bits: nothing is uploaded or launched for them. Used by one thread at a
// time.
//   SamplingRows rows(backend, sequences, logits, leaves); rows.attach(sample); launch(sample); rows.likeliest(ids,
//   logprobs);
#pragma once
#include <span>

#include "engine/sequence.h"
#include "kernels/backend.h"

namespace lockstep {

class SamplingRows {
 public:
  // `sequences[i]` samples from row i of `logits`. The buffers live as long as this object.
  SamplingRows(Backend& backend, std::span<Sequence* const> sequences, const View& logits, int maximum_leaves);
  // Launches what adjusts the logits and names adjusted rows and masks in `sample`.
  void attach(Sample& sample);
  // The likeliest tokens of rows whose requests ask for them, in order, into the rows from `begin` on; returns how
  // many.
  std::int64_t likeliest(const View& id, const View& logprob, std::int64_t begin);

 private:
  View upload(const std::vector<std::int32_t>& values, std::int64_t cols = 1);
  View upload(const std::vector<float>& values);
  void adjust(Sample& sample);
  void mask();

  Backend& backend_;
  std::span<Sequence* const> sequences_;
  View logits_;
  int maximum_leaves_;
  std::vector<Buffer> buffers_;
  View mask_{}, mask_row_{};
  std::vector<std::int32_t> mask_rows_;
};

}  // namespace lockstep
