// Deals a batch's sequences to data-parallel ranks, and gathers their results. Host data only.
//   const auto dealt = deal_sequences(data, layout); join_records(group, dealt, data, result, sums);
#pragma once
#include "parallel/communicator.h"
#include "parallel/layout.h"
#include "train/data.h"

namespace lockstep {

// Per-row values for the order-free sums.
struct RowSums {
  std::vector<double> index_losses;
  std::vector<std::size_t> moved;  // sequences in pieces of which this rank has a row with a gradient; none after count_moved
  void append(const RowSums& more) { index_losses.insert(index_losses.end(), more.index_losses.begin(), more.index_losses.end()); }
};

// What a data-parallel rank has of a batch, ascending: whole sequences, and its pieces of sequences that are cut (model/context_pieces.h).
struct DealtData {
  std::vector<std::size_t> whole, cut;
  int context_rank = 0, context_ranks = 1;
  // The rows of its sequences that it has.
  struct Part {
    std::size_t sequence = 0;
    std::int64_t begin = 0, end = 0;
  };
  std::vector<Part> parts(const std::vector<TrainSequence>& data) const;
  std::int64_t tokens(const std::vector<TrainSequence>& data) const;
};

// What each data-parallel rank gets: the longest sequences first, each to the rank, or where it is cut to the group of ranks, with the fewest tokens.
// Declared groups stay together, and are not cut. `tokens`: the ranks' tokens so far, from earlier data; updated.
std::vector<DealtData> deal_sequences(const std::vector<TrainSequence>& data, const RankLayout& layout, std::vector<std::size_t>* tokens = nullptr);

// The sequences of each of a rank's passes: those that are cut come first, one at a time, so that all ranks of a group meet in them.
struct PassPart {
  std::vector<std::size_t> sequences;
  bool cut = false;
};
std::vector<PassPart> pass_parts(const std::vector<TrainSequence>& data, const DealtData& own, std::int64_t micro_batch, int stages);

// All-gathers results and row sums of all ranks; `dealt` says which rank has what.
void join_records(Communicator& group, const std::vector<DealtData>& dealt, const std::vector<TrainSequence>& data, ForwardBackwardResult& result,
                  RowSums& sums);

// All-gathers the results of `own`, which the last working stage of a pipeline has, and the row sums of all stages.
void join_stages(Communicator& stages, int last, const DealtData& own, const std::vector<TrainSequence>& data, ForwardBackwardResult& result, RowSums& sums);

// Counts the sequences in pieces that have a row with a gradient on some rank, after the joins.
void count_moved(RowSums& sums, ForwardBackwardResult& result);

// Sums the losses of targets and rows into those of the batch, order-free. `rows` is the number of rows, 0 without an index loss.
void total_losses(const RowSums& sums, double rows, ForwardBackwardResult& result);

}  // namespace lockstep
