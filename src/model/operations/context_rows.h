// Keys of a sequence whose positions are on several ranks (model/context_pieces.h): written to the cache from all of them, and the sums of their
// gradients over queries, which go on from rank to rank in the order of positions. Where the rows are whole sequences these do what one rank does.
//   write_rows(ctx, ctx.cache(layer).entry.view(), entry.view());
#pragma once
#include <functional>

#include "model/context.h"
#include "model/context_pieces.h"

namespace lockstep {

// Writes `rows` [T, columns], which stand for the batch's rows, to their places in the cache; of pieces those of all ranks. Nothing with
// ForwardOptions::entries_stand.
void write_rows(Context& ctx, const View& cache, const View& rows);

// Of pieces: the gradient [T, columns] of the batch's rows as keys. launch(slot, range, sums) adds the terms of the queries of this rank's piece `slot`
// to the sums [keys, columns] of the keys of piece `range`, which hold those of all earlier queries; where the range is the piece's own it begins them.
Buffer continue_sums(Context& ctx, std::int64_t columns, const std::function<void(int slot, int range, const View& sums)>& launch);

// The same piece after piece, one rank at a time: launch(slot, sums) adds to the sums of all keys up to the piece's own end.
Buffer continue_all_sums(Context& ctx, std::int64_t columns, const std::function<void(int slot, const View& sums)>& launch);

// The rows of one of this rank's pieces, for a backward to the keys of a range.
Rows rows_of_piece(const Context& ctx, const Rows& tape_rows, int slot, int range);

}  // namespace lockstep
