// The rows (tokens) of a forward as kernels see them: device views, uploaded once per step (model/batch.h).
#pragma once
#include "tensor/view.h"

namespace lockstep {

// T rows; rows of one sequence stand together, positions ascending. i32 all, shapes [T, 1] unless said.
struct Rows {
  View token;
  View position;    // absolute, from 0
  View sequence;    // index into the page table
  View page_table;  // [sequences, pages a sequence]: page of position p is entry p / page_size
  std::int32_t page_size = 16;
  // Positions before it are no keys (model/blocks/mtp_layer.h, whose position 0 has no row): the row at p sees the keys from min(first_key, p) on.
  std::int32_t first_key = 0;
  // Training only (every sequence is whole, from position 0, unless `first` says more):
  View segment;         // index of the row's (sequence, block of 512 positions); ascending over rows
  View sequence_begin;  // [sequences + 1, 1]: first row of each sequence
  // Where sequences continue others (declared shared prefixes, model/batch.h), else none:
  View first;      // [sequences, 1]: position of the sequence's first row; the keys before it are another sequence's rows
  View key_begin;  // [sequences + 1, 1]: where the keys of each sequence stand, from position 0 on, in gradients of entries
};

}  // namespace lockstep
