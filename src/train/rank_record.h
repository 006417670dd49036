// Deals a batch's sequences to data-parallel ranks, and gathers their results. Host data only.
//   const auto dealt = deal_sequences(data, 4); join_records(group, dealt, data, result, sums);
#pragma once
#include "parallel/communicator.h"
#include "train/data.h"

namespace lockstep {

// Per-row values for the order-free sums.
struct RowSums {
  std::vector<double> index_losses;
  void append(const RowSums& more) { index_losses.insert(index_losses.end(), more.index_losses.begin(), more.index_losses.end()); }
};

// Assigns sequences to ranks, the longest first, each to the rank with the fewest tokens; returns each rank's indices, ascending. Declared
// groups stay together. `tokens`: the ranks' tokens so far, from earlier data; updated.
std::vector<std::vector<std::size_t>> deal_sequences(const std::vector<TrainSequence>& data, int ranks, std::vector<std::size_t>* tokens = nullptr);

// All-gathers results and row sums of all ranks; `dealt` says which rank has which sequences.
void join_records(Communicator& group, const std::vector<std::vector<std::size_t>>& dealt, const std::vector<TrainSequence>& data,
                  ForwardBackwardResult& result, RowSums& sums);

// All-gathers the results of `own` sequences, which the last working stage of a pipeline has, and the row sums of all stages.
void join_stages(Communicator& stages, int last, const std::vector<std::size_t>& own, const std::vector<TrainSequence>& data, ForwardBackwardResult& result,
                 RowSums& sums);

// Sums the losses of targets and rows into those of the batch, order-free. `rows` is the number of rows, 0 without an index loss.
void total_losses(const RowSums& sums, double rows, ForwardBackwardResult& result);

}  // namespace lockstep
