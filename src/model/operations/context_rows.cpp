#include "model/operations/context_rows.h"

#include <array>

#include "kernels/launch.h"
#include "parallel/transfer.h"

namespace lockstep {

// Entries that stand already are not written again: others may read them meanwhile, and rows that are read are compared with what these entries give.
// Of pieces half of the sequence at a time: what is gathered is whole rows in f32, of all ranks.
void write_rows(Context& ctx, const View& cache, const View& rows) {
  if (ctx.options().entries_stand) return;
  const ContextPieces* pieces = ctx.options().pieces;
  if (!pieces) return ctx.launch(&KernelTable::cache_write, CacheWrite{cache, 0, rows, ctx.batch().rows()});
  for (const int slot : {0, 1}) {
    const Rows theirs = pieces->rows_of(slot);
    const Buffer half = ctx.allocate(DType::f32, theirs.position.rows, rows.cols);
    pieces->gather(ctx.backend().stream(), slot, rows, half.view());
    ctx.launch(&KernelTable::cache_write, CacheWrite{cache, 0, half.view(), theirs});
  }
}

// In turn t piece i adds its queries to the keys of piece t - i, which then go to the rank of piece i + 1: the ranges of keys follow each other through the
// ranks, so that all compute at once. After the last piece they go to the rank that has them.
Buffer continue_sums(Context& ctx, std::int64_t columns, const std::function<void(int slot, int range, const View& sums)>& launch) {
  const ContextPieces& pieces = *ctx.options().pieces;
  const int last = pieces.last();
  const auto sums_of = [&](int range) { return ctx.allocate(DType::f32, pieces.piece(range).size(), columns); };
  const Buffer own = ctx.allocate_tape(columns);
  std::array<Buffer, 2> sums;
  for (int turn = 0; turn <= 2 * last; ++turn) {
    std::vector<View> to(static_cast<std::size_t>(pieces.group().size())), from(to.size());
    std::array<Buffer, 2> next;
    for (const int slot : {0, 1}) {
      const auto s = static_cast<std::size_t>(slot);
      const int number = pieces.own(slot), range = turn - number;
      if (range >= 0 && range <= number) {
        if (range == number) sums[s] = sums_of(range);
        launch(slot, range, sums[s].view());
        to[static_cast<std::size_t>(pieces.owner(number < last ? number + 1 : range))] = sums[s].view();
      }
      if (const int following = range + 1; following >= 0 && following < number)
        from[static_cast<std::size_t>(pieces.owner(number - 1))] = (next[s] = sums_of(following)).view();
      if (turn - last == number)  // a range that is through
        from[static_cast<std::size_t>(pieces.owner(last))] = own.view().row_range(pieces.first_row(slot), pieces.piece(number).size());
    }
    pieces.group().exchange(ctx.backend().stream(), to, from);
    sums = std::move(next);
  }
  return own;
}

Buffer continue_all_sums(Context& ctx, std::int64_t columns, const std::function<void(int slot, const View& sums)>& launch) {
  const ContextPieces& pieces = *ctx.options().pieces;
  const int last = pieces.last(), rank = pieces.group().rank();
  Stream& stream = ctx.backend().stream();
  const Buffer own = ctx.allocate_tape(columns);
  Buffer sums;  // of the piece that is now computed, where it is this rank's
  for (int number = 0; number <= last; ++number) {
    const int owner = pieces.owner(number), next = number < last ? pieces.owner(number + 1) : -1;
    const std::int64_t keys = pieces.piece(number).end;
    if (owner == rank) {
      if (number == 0) sums = ctx.allocate(DType::f32, keys, columns);
      launch(number <= last / 2 ? 0 : 1, sums.view());
    }
    const Buffer following = next == rank ? ctx.allocate(DType::f32, pieces.piece(number + 1).end, columns) : Buffer();
    const View to = owner == rank && next >= 0 ? sums.view() : View{}, from = next == rank ? following.view().row_range(0, keys) : View{};
    if (next >= 0) send_between(pieces.group(), stream, owner, next, to, from);
    if (number < last) sums = following;
  }
  std::vector<View> to(static_cast<std::size_t>(pieces.group().size())), from(to.size());
  for (const int slot : {0, 1}) {  // two pieces a rank: their keys one after another
    const PositionRange& mine = pieces.piece(pieces.own(slot));
    from.assign(to.size(), {});
    to.assign(to.size(), {});
    if (pieces.owner(last) == rank)
      for (std::size_t r = 0; r < to.size(); ++r) {
        const PositionRange& theirs = pieces.piece(slot == 0 ? static_cast<int>(r) : last - static_cast<int>(r));
        to[r] = sums.view().row_range(theirs.begin, theirs.size());
      }
    from[static_cast<std::size_t>(pieces.owner(last))] = own.view().row_range(pieces.first_row(slot), mine.size());
    pieces.group().exchange(stream, to, from);
  }
  return own;
}

Rows rows_of_piece(const Context& ctx, const Rows& tape_rows, int slot, int range) {
  Rows rows = tape_rows;
  rows.sequence_begin = rows.sequence_begin.row_range(slot, 2);
  rows.first = ctx.options().pieces->first(slot);
  rows.key_begin = ctx.options().pieces->key_begin(range);
  return rows;
}

}  // namespace lockstep
