// One rank of a step without the others (parallel/counted_rank.h), whose records are as large as those of a step of these sequences.
//   const auto ranks = std::make_shared<RankRuntimes>(runtime, layout, rank_alone(data, layout, 3, true)); Trainer trainer(runtime, none, options, ranks);
#pragma once
#include "parallel/counted_rank.h"
#include "train/data.h"

namespace lockstep {

// `process`: ranks are processes, else threads. Errors: those of CountedRank.
std::unique_ptr<CountedRank> rank_alone(const std::vector<TrainSequence>& data, const RankLayout& layout, int rank, bool process);

}  // namespace lockstep
