// What data-parallel ranks tell each other of a batch: which sequences are whose, and what came out of them. Host data only.
#pragma once
#include "parallel/communicator.h"
#include "train/data.h"

namespace lockstep {

// Of every row, for the order-free sums.
struct RowSums {
  std::vector<double> index_losses;
  void append(const RowSums& more) { index_losses.insert(index_losses.end(), more.index_losses.begin(), more.index_losses.end()); }
};

// Numbers of the sequences of each rank, ascending: the longest first, each to the rank with the fewest tokens. Declared groups stay
// together. `tokens`: what the ranks have so far, of data that came before; it grows.
std::vector<std::vector<std::size_t>> deal_sequences(const std::vector<TrainSequence>& data, int ranks, std::vector<std::size_t>* tokens = nullptr);

// Every rank's results and row sums become those of all; `dealt` says whose is what.
void join_records(Communicator& group, const std::vector<std::vector<std::size_t>>& dealt, const std::vector<TrainSequence>& data,
                  ForwardBackwardResult& result, RowSums& sums);

// The losses of a batch from those of its targets and rows, in whatever order they came. `rows` is their number, 0 without an index loss.
void total_losses(const RowSums& sums, double rows, ForwardBackwardResult& result);

}  // namespace lockstep
