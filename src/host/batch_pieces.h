// Where a client's batch is cut into the pieces that turns compute. Sequences of one declared group (train/data.h) are never cut apart, nor from what stands
// between them; so much of a batch has a limit, since others wait for a turn. Pure functions.
//   check_uncut(sequences, max_positions); end = piece_end(sequences, next, tokens); end = half_piece(sequences, next, end);
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "train/data.h"

namespace lockstep {

inline constexpr std::size_t kMostUncut = 4096;  // sequences that are computed at once
// Rows of these: a sequence alone may have all positions.
std::int64_t most_uncut_rows(std::int64_t max_positions);
// Error invalid_argument: more than that hangs together. `datum`: of a sequence's place, where the two are in another order.
void check_uncut(const std::vector<TrainSequence>& sequences, std::int64_t max_positions, const std::function<std::size_t(std::size_t)>& datum = {});
// The end of the next piece of a batch from `begin` on: about as many tokens as a turn allows, one sequence at least, and whole declared groups.
std::size_t piece_end(const std::vector<TrainSequence>& sequences, std::size_t begin, std::int64_t tokens);
// That of about half of the piece [begin, end), with whole groups; `end` where it cannot be cut.
std::size_t half_piece(const std::vector<TrainSequence>& sequences, std::size_t begin, std::size_t end);

}  // namespace lockstep
