// Where a client's batch is cut into the pieces that turns compute. Sequences of one declared group (train/data.h) are never cut apart. Pure functions.
//   end = piece_end(sequences, next, tokens); end = half_piece(sequences, next, end);
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "train/data.h"

namespace lockstep {

// The end of the next piece of a batch from `begin` on: about as many tokens as a turn allows, one sequence at least, and whole declared groups.
std::size_t piece_end(const std::vector<TrainSequence>& sequences, std::size_t begin, std::int64_t tokens);
// That of about half of the piece [begin, end), with whole groups; `end` where it cannot be cut.
std::size_t half_piece(const std::vector<TrainSequence>& sequences, std::size_t begin, std::size_t end);

}  // namespace lockstep
