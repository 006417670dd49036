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

namespace {
// The views of a reduce-scatter, by rank: what this one sends, and where what the others send of its rows goes.
struct ScatterViews {
  std::vector<View> to, from;
};
ScatterViews scatter_views(const Communicator& group, const StartedReduceScatter& started) {
  const int ranks = group.size(), me = group.rank();
  const std::int64_t mine = started.bounds[at(me) + 1] - started.bounds[at(me)];
  ScatterViews views{std::vector<View>(at(ranks)), std::vector<View>(at(ranks))};
  int place = 0;
  for (int r = 0; r < ranks; ++r) {
    if (r == me) continue;
    views.to[at(r)] = rows_of(started.data, started.bounds, r);
    views.from[at(r)] = started.parts.view().row_range(place++ * mine, mine);
  }
  return views;
}
StartedReduceScatter prepared(const Communicator& group, Device& device, const View& data, const std::vector<std::int64_t>& bounds) {
  const std::int64_t mine = bounds[at(group.rank()) + 1] - bounds[at(group.rank())];
  return {data, bounds, device.allocate(data.dtype, mine * (group.size() - 1), data.cols, MemoryCategory::workspace)};
}
void add_parts(const Communicator& group, const StartedReduceScatter& started, const std::vector<View>& from, const AddInto& add) {
  const int me = group.rank();
  const View own = rows_of(started.data, started.bounds, me);
  if (own.rows == 0) return;
  for (int r = 0; r < group.size(); ++r)
    if (r != me) add(own, from[at(r)]);
}
}  // namespace

void reduce_scatter(Communicator& group, Device& device, const View& data, const std::vector<std::int64_t>& bounds, const AddInto& add) {
  if (group.size() == 1) return;
  const CollectiveScope scope(Collective::reduce_scatter);
  const StartedReduceScatter started = prepared(group, device, data, bounds);
  const ScatterViews views = scatter_views(group, started);
  group.exchange(device.stream(), views.to, views.from);
  add_parts(group, started, views.from, add);
}

StartedReduceScatter start_reduce_scatter(Communicator& group, Device& device, const View& data, const std::vector<std::int64_t>& bounds) {
  const CollectiveScope scope(Collective::reduce_scatter);
  StartedReduceScatter started = prepared(group, device, data, bounds);
  const ScatterViews views = scatter_views(group, started);
  group.start(device.stream(), views.to, views.from);
  return started;
}

void finish_reduce_scatter(Communicator& group, Stream& stream, const StartedReduceScatter& started, const AddInto& add) {
  const CollectiveScope scope(Collective::reduce_scatter);
  group.finish(stream);
  add_parts(group, started, scatter_views(group, started).from, add);
}

void start_all_gather(Communicator& group, Stream& stream, const View& mine, const std::vector<View>& all) {
  const CollectiveScope scope(Collective::all_gather);
  group.start(stream, std::vector<View>(at(group.size()), mine), all);
}

void finish_all_gather(Communicator& group, Stream& stream) {
  const CollectiveScope scope(Collective::all_gather);
  group.finish(stream);
}

}  // namespace lockstep
