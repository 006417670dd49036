// The ranks of a run as an owner of some of them sees them: how many there are, which are local, and each local one's groups. An owner makes devices
// and state for its local ranks only and reaches the others through groups, so ranks may be threads of one process (parallel/thread_ranks.h: all are
// local) or spread over processes. Every owner makes the same calls in the same order. One caller at a time.
//   ranks.run([&](int local) { ranks.place(local).data->barrier(); });
#pragma once
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "base/seconds.h"
#include "parallel/rank_place.h"

namespace lockstep {

class Ranks {
 public:
  virtual ~Ranks() = default;
  virtual const RankLayout& layout() const = 0;
  // Number of local ranks, 1 or more: local rank 0, 1, ... by ascending number.
  virtual int local() const = 0;
  virtual RankPlace place(int local) const = 0;
  // Calls work(local) for every local rank, each on a thread of its own, and returns when all are done. An error of one rank, local or
  // remote, releases the others; the error of the rank that failed first is thrown.
  virtual void run(const std::function<void(int)>& work) = 0;
  // Whether exchanges that were started go on while ranks compute (Communicator::start).
  virtual bool moves_meanwhile() const { return false; }
  // Seconds that work(local) of all run() calls so far has taken, waiting included; 0 where this is not counted.
  virtual double worked(int local) const { return 0; }
  // Where the local ranks are: of one process 0, and this machine's name.
  virtual int process() const { return 0; }
  virtual std::string host() const;

  int size() const { return layout().size(); }
  bool all_here() const { return local() == size(); }
  // All-gather: of(local) of every rank, by rank. T holds plain numbers only.
  template <class T, class F>
  std::vector<T> gather(const F& of);
};

// Adds the seconds that it lives to `to`.
class WorkedSeconds {
 public:
  explicit WorkedSeconds(double& to) : to_(to) {}
  ~WorkedSeconds() { to_ += seconds_since(begun_); }
  WorkedSeconds(const WorkedSeconds&) = delete;
  WorkedSeconds& operator=(const WorkedSeconds&) = delete;

 private:
  double& to_;
  const std::chrono::steady_clock::time_point begun_ = std::chrono::steady_clock::now();
};

// Traffic of all ranks and groups so far.
CommunicatorCounters traffic_of(Ranks& ranks);

template <class T, class F>
std::vector<T> Ranks::gather(const F& of) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::vector<T> all;
  if (all_here()) {
    for (int rank = 0; rank < local(); ++rank) all.push_back(of(rank));
    return all;
  }
  run([&](int mine) {
    const T own = of(mine);
    const std::vector<std::string> told = place(mine).world->gather_host(std::string(reinterpret_cast<const char*>(&own), sizeof(T)));
    if (mine != 0) return;
    for (const std::string& record : told) std::memcpy(&all.emplace_back(), record.data(), sizeof(T));
  });
  return all;
}

}  // namespace lockstep
