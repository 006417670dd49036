// Plans which sequences are computed together and as which rows: whole sequences whose equal prefixes are computed once (no bit changes), or
// declared shared prefixes as sequences of their own (docs/numerics.md).
//   for (const auto& part : micro_batches(data, own, 8)) run(plan_rows(data, part, 16, true));
// Host data only; pure functions.
#pragma once
#include "model/batch.h"
#include "train/data.h"

namespace lockstep {

// Units that must not be split: the sequences of a declared group, in order; any other sequence alone. Ordered by their first sequences.
std::vector<std::vector<std::size_t>> sequence_units(const std::vector<TrainSequence>& data, const std::vector<std::size_t>& members);

// At most `size` sequences each (0: all), groups not split. Error invalid_argument for a group of more than `size`.
std::vector<std::vector<std::size_t>> micro_batches(const std::vector<TrainSequence>& data, const std::vector<std::size_t>& members, std::size_t size);

inline constexpr int kMicroBatchesAStage = 4;  // in one turn of a pipeline: its stages wait for each other at most a fifth of the time
// Sequences of a micro-batch: `wanted`, or if that is 0 all of them (0), in a pipeline of several stages as few as kMicroBatchesAStage asks for, but whole
// groups.
std::size_t micro_batch_size(const std::vector<TrainSequence>& data, const std::vector<std::size_t>& members, std::int64_t wanted, int stages);

// Error invalid_argument unless the prefixes of every declared group are equal, inside their sequences and without targets.
void check_declared_prefixes(const std::vector<TrainSequence>& data);

struct RowPlan {
  std::vector<SequenceSlice> slices;
  // Of each slice: its sequence, and whether it is that sequence's declared prefix alone.
  struct Origin {
    std::size_t sequence = 0;
    bool prefix = false;
  };
  std::vector<Origin> origins;
  std::int64_t page_size = 0, pages = 0;
};
// This rank's pieces of one sequence, which is cut (model/context_pieces.h): two slices.
RowPlan plan_pieces(const std::vector<TrainSequence>& data, std::size_t sequence, std::int64_t page_size, int ranks, int rank);
// `share`: rows of equal prefixes are computed once, in micro-batches without declared groups.
RowPlan plan_rows(const std::vector<TrainSequence>& data, const std::vector<std::size_t>& part, std::int64_t page_size, bool share);

// Several parts in one forward, one after another. If there are two or more, pages hold one position each, whatever page size a part alone would
// have.
struct JointPlan {
  std::vector<RowPlan> plans;            // each part's own
  std::vector<std::size_t> first_slice;  // of each part, in `slices`
  std::vector<SequenceSlice> slices;
  std::int64_t page_size = 0, pages = 0;
};
struct DataPart {
  const std::vector<TrainSequence>* data = nullptr;
  std::vector<std::size_t> part;
};
JointPlan plan_together(const std::vector<DataPart>& parts, std::int64_t page_size, bool share);

}  // namespace lockstep
