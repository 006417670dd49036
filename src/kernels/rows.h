// The rows (tokens) of a forward as kernels see them: device views, uploaded once per step (model/batch.h).
#pragma once
#include "tensor/view.h"

namespace lockstep {

// T rows; the rows of a sequence are contiguous, positions ascending. All views are i32, of shape [T, 1] unless noted.
struct Rows {
  View token;
  View position;    // absolute, from 0
  View sequence;    // index into the page table
  View page_table;  // [sequences, pages a sequence]: page of position p is entry p / page_size
  std::int32_t page_size = 16;
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
