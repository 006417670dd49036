// All-gather, broadcast, all-reduce and reduce-scatter over Communicator::exchange, with the same order of additions for any number of ranks.
//   all_reduce_tree(group, device, partial, leaves, add);
//   start_all_gather(group, stream, mine, all); compute(); finish_all_gather(group, stream);
// all_reduce_tree joins partial sums in rank order as the leaves of a chain join (deal.h); reduce_scatter is for exact sums (order-free
// accumulators, counts). The caller supplies the addition, a kernel on the rank's own device. All ranks of the group call together.
#pragma once
#include <functional>

#include "parallel/communicator.h"
#include "parallel/deal.h"
#include "tensor/device.h"

namespace lockstep {

using AddInto = std::function<void(const View& into, const View& from)>;  // queued on the rank's stream

// On every rank, all[r] becomes rank r's `mine`. `mine` may be all[own rank].
void all_gather(Communicator& group, Stream& stream, const View& mine, const std::vector<View>& all);
// Overwrites `data` on every rank with the root's.
void broadcast(Communicator& group, Stream& stream, const View& data, int root);
// `data` [rows, columns]: a partial sum over the leaves that deal(leaves, ranks) gives this rank becomes the whole sum, on every
// rank. Ranks without leaves pass a buffer of the same shape that is only written. `leaves` is a power of two.
void all_reduce_tree(Communicator& group, Device& device, const View& data, std::int64_t leaves, const AddInto& add);
// On rank r, rows [bounds[r], bounds[r + 1]) of `data` become their sum over all ranks; its other rows stay. A rank adds to its own rows those of
// the others in rank order, so the order differs between ranks: for exact sums only.
void reduce_scatter(Communicator& group, Device& device, const View& data, const std::vector<std::int64_t>& bounds, const AddInto& add);

// These in two halves (Communicator::start): what was begun is finished in the same order.
void start_all_gather(Communicator& group, Stream& stream, const View& mine, const std::vector<View>& all);
void finish_all_gather(Communicator& group, Stream& stream);
struct StartedReduceScatter {
  View data;  // as they were given
  std::vector<std::int64_t> bounds;
  Buffer parts;  // of this rank's rows, from each other rank
};
StartedReduceScatter start_reduce_scatter(Communicator& group, Device& device, const View& data, const std::vector<std::int64_t>& bounds);
void finish_reduce_scatter(Communicator& group, Stream& stream, const StartedReduceScatter& started, const AddInto& add);

}  // namespace lockstep
