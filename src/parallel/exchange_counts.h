// Counts of a transport's exchanges, bytes and waiting, by the operation that made them and by group. Of records of host values
// (Communicator::gather_host) the waiting alone is counted.
//   const RankExchanges before = exchanges_of(place); ...; const RankExchanges step = exchanges_of(place) - before;
#pragma once
#include <algorithm>
#include <array>
#include <chrono>
#include <string_view>

#include "parallel/rank_place.h"

namespace lockstep {

enum class Collective { exchange, all_gather, broadcast, all_reduce, reduce_scatter, records };
inline constexpr int kCollectives = 6;
inline constexpr std::array<std::string_view, kCollectives> kCollectiveNames = {"exchange",   "all_gather",     "broadcast",
                                                                                "all_reduce", "reduce_scatter", "records"};

struct ExchangeCounters : CommunicatorCounters {
  // The bytes as they travelled: between processes accumulators (parallel/bins_codec.h) and rows for experts (parallel/chosen_rows.h) take fewer, never more.
  std::int64_t sent = 0;
  double waited = 0;  // seconds, for other ranks and for what they send
  double moved = 0;   // seconds that bytes took here to be packed, copied and unpacked: the rest of the exchanges' time
  ExchangeCounters& operator+=(const ExchangeCounters& more) {
    calls += more.calls, bytes += more.bytes, sent += more.sent, waited += more.waited, moved += more.moved;
    return *this;
  }
  ExchangeCounters& operator-=(const ExchangeCounters& less) {
    calls -= less.calls, bytes -= less.bytes, sent -= less.sent, waited -= less.waited, moved -= less.moved;
    return *this;
  }
};
using ExchangeCounts = std::array<ExchangeCounters, kCollectives>;

// Names the operation of this thread's exchanges while it lives. The outermost counts: an all-reduce gathers too.
class CollectiveScope {
 public:
  explicit CollectiveScope(Collective what);
  ~CollectiveScope();
  CollectiveScope(const CollectiveScope&) = delete;
  CollectiveScope& operator=(const CollectiveScope&) = delete;
  static Collective current();

 private:
  Collective outer_;
};

// A transport that counts by operation. One thread at a time.
class CountingCommunicator : public Communicator {
 public:
  const ExchangeCounts& by_operation() const { return by_operation_; }

 protected:
  void count_call() {
    ++counters_.calls;
    ++current().calls;
  }
  void count_bytes(std::int64_t bytes, std::int64_t sent) {
    counters_.bytes += bytes;
    current().bytes += bytes, current().sent += sent;
  }
  // While it lives, time that is not waited is that of moving the present operation's bytes.
  class Moving {
   public:
    explicit Moving(ExchangeCounters& counters) : counters_(counters), waited_(counters.waited) {}
    ~Moving() {
      const double all = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun_).count();
      counters_.moved += std::max(0.0, all - (counters_.waited - waited_));
    }
    Moving(const Moving&) = delete;
    Moving& operator=(const Moving&) = delete;

   private:
    ExchangeCounters& counters_;
    const double waited_;  // before
    const std::chrono::steady_clock::time_point begun_ = std::chrono::steady_clock::now();
  };
  Moving moving() { return Moving(current()); }
  // The time that f() takes.
  template <class F>
  auto waiting(Collective what, const F& f) {
    struct Clock {
      ExchangeCounters& counters;
      std::chrono::steady_clock::time_point begun = std::chrono::steady_clock::now();
      ~Clock() { counters.waited += std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count(); }
    } clock{by_operation_[static_cast<std::size_t>(what)]};
    return f();
  }

 private:
  ExchangeCounters& current() { return by_operation_[static_cast<std::size_t>(CollectiveScope::current())]; }
  ExchangeCounts by_operation_{};
};

enum class RankGroup { world, tensor, model, data, stages, before, after, context };
inline constexpr int kRankGroups = 8;
inline constexpr std::array<std::string_view, kRankGroups> kRankGroupNames = {"world", "tensor", "model", "data", "stages", "before", "after", "context"};

struct RankExchanges {
  std::array<ExchangeCounts, kRankGroups> groups{};
  const ExchangeCounters& of(RankGroup group, Collective what) const { return groups[static_cast<std::size_t>(group)][static_cast<std::size_t>(what)]; }
  ExchangeCounters sum(RankGroup group) const;
  ExchangeCounters sum() const;  // of all groups
  RankExchanges operator-(const RankExchanges& earlier) const;
  // The first count of calls or bytes that differs ("model all_reduce: 3 calls, 96 bytes are not 3 calls, 64 bytes"); empty: all are equal. What was
  // sent for those bytes depends on values, and times on the machine: neither is compared.
  std::string difference(const RankExchanges& other) const;
};
// Of a rank so far: zeros for groups of one (null), and for transports that do not count by operation.
RankExchanges exchanges_of(const RankPlace& place);

}  // namespace lockstep
