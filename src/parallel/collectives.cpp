#include "parallel/collectives.h"

#include "parallel/exchange_counts.h"

namespace lockstep {

namespace {
std::size_t at(int rank) { return static_cast<std::size_t>(rank); }
View rows_of(const View& data, const std::vector<std::int64_t>& bounds, int rank) {
  return data.row_range(bounds[at(rank)], bounds[at(rank) + 1] - bounds[at(rank)]);
}
}  // namespace

void all_gather(Communicator& group, Stream& stream, const View& mine, const std::vector<View>& all) {
  const CollectiveScope scope(Collective::all_gather);
  group.exchange(stream, std::vector<View>(at(group.size()), mine), all);
}

void broadcast(Communicator& group, Stream& stream, const View& data, int root) {
  const CollectiveScope scope(Collective::broadcast);
  std::vector<View> to(at(group.size())), from(at(group.size()));
  if (group.rank() == root) to.assign(to.size(), data);
  from[at(root)] = data;
  group.exchange(stream, to, from);
}

void all_reduce_tree(Communicator& group, Device& device, const View& data, std::int64_t leaves, const AddInto& add) {
  const int ranks = group.size(), me = group.rank();
  if (ranks == 1 || data.size() == 0) return;
  const CollectiveScope scope(Collective::all_reduce);
  const std::vector<std::int64_t> owned = deal(leaves, ranks);
  if (leaves == 1) return broadcast(group, device.stream(), data, 0);
  // Each rank sums some of the rows: it receives every owner's part of them and sends the sums to all.
  std::vector<std::int64_t> rows(at(ranks) + 1);
  for (int r = 0; r <= ranks; ++r) rows[at(r)] = data.rows * r / ranks;
  const auto owns = [&](int r) { return owned[at(r) + 1] > owned[at(r)]; };
  const std::int64_t mine = rows[at(me) + 1] - rows[at(me)];
  const Buffer parts = device.allocate(data.dtype, mine * ranks, data.cols, MemoryCategory::workspace);
  std::vector<View> to(at(ranks)), from(at(ranks));
  for (int r = 0; r < ranks; ++r) {
    if (owns(me)) to[at(r)] = rows_of(data, rows, r);
    if (owns(r)) from[at(r)] = parts.view().row_range(r * mine, mine);
  }
  group.exchange(device.stream(), to, from);
  if (mine > 0)
    for (const auto& [into, other] : joins(leaves, ranks)) add(from[at(into)], from[at(other)]);
  std::vector<View> all(at(ranks));
  for (int r = 0; r < ranks; ++r) all[at(r)] = rows_of(data, rows, r);
  all_gather(group, device.stream(), parts.view().row_range(0, mine), all);
}

void reduce_scatter(Communicator& group, Device& device, const View& data, const std::vector<std::int64_t>& bounds, const AddInto& add) {
  const int ranks = group.size(), me = group.rank();
  if (ranks == 1) return;
  const CollectiveScope scope(Collective::reduce_scatter);
  const std::int64_t mine = bounds[at(me) + 1] - bounds[at(me)];
  const Buffer parts = device.allocate(data.dtype, mine * (ranks - 1), data.cols, MemoryCategory::workspace);
  std::vector<View> to(at(ranks)), from(at(ranks));
  int place = 0;
  for (int r = 0; r < ranks; ++r) {
    if (r == me) continue;
    to[at(r)] = rows_of(data, bounds, r);
    from[at(r)] = parts.view().row_range(place++ * mine, mine);
  }
  group.exchange(device.stream(), to, from);
  if (mine == 0) return;
  for (int r = 0; r < ranks; ++r)
    if (r != me) add(rows_of(data, bounds, me), from[at(r)]);
}

}  // namespace lockstep
