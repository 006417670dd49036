// Declares the equal prompts of sequences as shared prefixes (train/data.h), so that they are computed once in the backward too. A prompt is what
// precedes a sequence's first weighted target. Pure functions; trainers take it with TrainerOptions::declared_prefixes.
//   declare_prompts(batch);
#pragma once
#include <cstddef>
#include <vector>

#include "train/data.h"

namespace lockstep {

// Rows in front whose targets weigh nothing, neither in the loss nor in a ratio of the sequence; all of them where none weighs anything.
std::ptrdiff_t unweighted_rows(const TrainSequence& sequence);
// These members are one group, named after the first: so many rows are shared, and have no targets.
void declare_group(std::vector<TrainSequence>& batch, const std::vector<std::size_t>& members, std::ptrdiff_t rows);
// Declares the equal prompts of a batch: of sequences that share theirs with another one, the prompt has no targets and is a group.
void declare_prompts(std::vector<TrainSequence>& batch);
// The same of pairs, which stand one behind the other: a pair is a group of its own, and shares what both sequences begin with and neither weighs.
void declare_pairs(std::vector<TrainSequence>& batch);

}  // namespace lockstep
