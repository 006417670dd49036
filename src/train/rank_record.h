// What data-parallel ranks tell each other of a batch: which sequences are whose, and what came out of them. Host data only.
#pragma once
#include "parallel/communicator.h"
#include "train/data.h"

namespace lockstep {

// Of every row, for the order-free sums.
struct RowSums {
  std::vector<float> losses;
  std::vector<double> index_losses;
};

// Numbers of the sequences of each rank, ascending: the longest first, each to the rank with the fewest tokens. Declared groups stay
// together.
std::vector<std::vector<std::size_t>> deal_sequences(const std::vector<TrainSequence>& data, int ranks);

// Every rank's results and row sums become those of all; `dealt` says whose is what.
void join_records(Communicator& group, const std::vector<std::vector<std::size_t>>& dealt, const std::vector<TrainSequence>& data,
                  ForwardBackwardResult& result, RowSums& sums);

}  // namespace lockstep
