// The rows (tokens) of a forward as kernels see them: device views, uploaded once per step (model/batch.h).
#pragma once
#include "tensor/view.h"

namespace lockstep {

// T rows; the rows of a sequence are contiguous, positions ascending. All views are i32, of shape [T, 1] unless noted.
struct Rows {
  View token;
  View position;  // absolute, from 0
  View sequence;  // index of its sequence
  // [sequences + pages of all, 1], without gaps: entry s says where in it the pages of sequence s begin, of which that of position p is number
  // p / page_size (kernels/cache/pages.h). A long sequence costs short ones nothing.
  View page_table;
  std::int32_t page_size = 16;
  std::int64_t longest = 0;  // positions of the pages of the sequence with most
  // Keys before this position are not seen (in model/blocks/mtp_layer.h position 0 has no row): the row at p sees keys from min(first_key, p) on.
  std::int32_t first_key = 0;
  // Training only (every sequence is whole, from position 0, unless `first` says more):
  View segment;         // index of the row's (sequence, block of 512 positions); ascending over rows
  View sequence_begin;  // [sequences + 1, 1]: first row of each sequence
  // Where sequences continue others (declared shared prefixes, model/batch.h), else none:
  View first;      // [sequences, 1]: position of the sequence's first row; the keys before it are another sequence's rows
  View key_begin;  // [sequences + 1, 1]: where the keys of each sequence stand, from position 0 on, in gradients of entries
};

}  // namespace lockstep
