#include "model/expert_pairs.h"

#include "kernels/launch.h"
#include "model/dealt_rows.h"
#include "model/sharding.h"
#include "parallel/chosen_rows.h"
#include "parallel/collectives.h"
#include "parallel/exchange_counts.h"

namespace lockstep {

namespace {
std::size_t rank_at(int rank) { return static_cast<std::size_t>(rank); }

// Rank r sums the rows [begin[r], begin[r + 1]) of all.
struct Homes {
  Homes(const Context& ctx, int ranks, std::int64_t rows) {
    if (const DealtRows* dealt = ctx.options().dealt_rows) {
      begin = dealt->begin();
      return;
    }
    for (int r = 0; r <= ranks; ++r) begin.push_back(rows * r / ranks);
  }
  std::int64_t count(int rank) const { return begin[rank_at(rank) + 1] - begin[rank_at(rank)]; }
  // A rank's part of a view with `each` rows for each row of all.
  View of(const View& all, int rank, std::int64_t each = 1) const { return all.row_range(begin[rank_at(rank)] * each, count(rank) * each); }
  std::vector<std::int64_t> begin;
};

bool has_pairs(const ExpertPairs& pairs, int rank) { return (*pairs.bounds)[rank_at(rank) + 1] > (*pairs.bounds)[rank_at(rank)]; }

// The outputs of the pairs of this rank's rows, f32 [rows k, h] in their order, each from the rank that has its expert.
Buffer pairs_at_home(Context& ctx, const Homes& homes, const ExpertPairs& pairs) {
  Communicator& group = ctx.sharding()->model();
  const int ranks = group.size(), me = group.rank();
  const std::int64_t all = pairs.expert.size(), k = pairs.expert.cols, width = pairs.of_slots.cols, own = homes.count(me) * k;
  Buffer sent;
  if (has_pairs(pairs, me)) {
    sent = ctx.allocate(DType::f32, all, width);
    ctx.launch(&KernelTable::expert_gather, ExpertGather{sent.view(), pairs.of_slots, pairs.slot_of.reshape(all, 1)});
  }
  const Buffer parts = ctx.allocate(DType::f32, own * ranks, width);
  const View index = pairs.expert.reshape(all, 1);
  const auto choice = [&](int whose, int of) { return RowChoice{homes.of(index, whose, k), (*pairs.bounds)[rank_at(of)], (*pairs.bounds)[rank_at(of) + 1]}; };
  std::vector<View> to(rank_at(ranks)), from(rank_at(ranks));
  std::vector<RowChoice> to_rows, from_rows;
  for (int r = 0; r < ranks; ++r) {
    if (sent) to[rank_at(r)] = homes.of(sent.view(), r, k);
    if (has_pairs(pairs, r)) from[rank_at(r)] = parts.view().row_range(r * own, own);
    to_rows.push_back(choice(r, me));
    from_rows.push_back(choice(me, r));
  }
  exchange_chosen(group, ctx.backend().stream(), to, from, to_rows, from_rows);
  Buffer home = ctx.allocate(DType::f32, own, width);
  ctx.launch(&KernelTable::pick, Pick{home.view(), parts.view(), homes.of(index, me, k), *pairs.bounds});
  return home;
}
}  // namespace

void sum_pairs(Context& ctx, const View& y, const ExpertPairs& pairs) {
  const bool dealt = ctx.options().dealt_rows;
  const CollectiveScope scope(dealt ? Collective::exchange : Collective::all_reduce);
  Communicator& group = ctx.sharding()->model();
  const int me = group.rank();
  const Homes homes(ctx, group.size(), pairs.expert.rows);
  const Buffer outputs = pairs_at_home(ctx, homes, pairs);
  const View own = dealt ? y : homes.of(y, me);
  ctx.launch(&KernelTable::expert_combine,
             ExpertCombine{own, outputs.view(), pairs.weight ? homes.of(pairs.weight, me) : View(), homes.of(pairs.expert, me), View(), pairs.experts});
  if (dealt) return;
  std::vector<View> all;
  for (int r = 0; r < group.size(); ++r) all.push_back(homes.of(y, r));
  all_gather(group, ctx.backend().stream(), own, all);
}

}  // namespace lockstep
