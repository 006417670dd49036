// Exchange of buffers between the ranks of a group. No arithmetic happens here: kernels of the caller add (parallel/collectives.h), in an order that
// does not depend on arrival. Transports: threads of one process (parallel/thread_ranks.h), processes (parallel/process_ranks.h). All ranks of the
// group make the same calls in the same order; a rank's end is used by one thread at a time. When a rank fails, every call of the others throws
// `cancelled`, so none waits for ever.
//   group.exchange(stream, to, from);  // to[r] goes to rank r, from[r] comes from it
#pragma once
#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "tensor/stream.h"

namespace lockstep {

struct CommunicatorCounters {
  std::int64_t calls = 0;  // exchanges
  std::int64_t bytes = 0;  // received from other ranks
};

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual void barrier() = 0;
  // Sends to[r] to rank r, and fills from[r] with what rank r sends here; views of a pair have the same shape and type, and may
  // be empty (rows or columns 0) or none. A rank's view to itself is copied unless it has the same address. Ordered with `stream`: it
  // sends what earlier work wrote, and later work sees what was received; `to` may be overwritten when the call returns.
  virtual void exchange(Stream& stream, const std::vector<View>& to, const std::vector<View>& from) = 0;
  // The same in two halves, between which this rank computes while bytes travel: finish() ends the oldest exchange that start() began and fills its
  // `from`; until then both are left alone. All ranks of the group begin and end in the same order, and nothing else is exchanged in the group from the
  // first start() to the last finish(). A transport that moves nothing meanwhile, as threads, exchanges in finish().
  virtual void start(Stream&, const std::vector<View>& to, const std::vector<View>& from) { started_.emplace_back(to, from); }
  virtual void finish(Stream& stream) {
    const auto [to, from] = std::move(started_.front());
    started_.pop_front();
    exchange(stream, to, from);
  }
  // After an error: what was started is not finished.
  virtual void forget_started() { started_.clear(); }
  // All-gather of small host records: the bytes of every rank, by rank.
  virtual std::vector<std::string> gather_host(const std::string& mine) = 0;
  const CommunicatorCounters& counters() const { return counters_; }

 protected:
  CommunicatorCounters counters_;

 private:
  std::deque<std::pair<std::vector<View>, std::vector<View>>> started_;
};

}  // namespace lockstep
