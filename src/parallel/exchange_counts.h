// Counts of a transport's exchanges and bytes, by the operation that made them and by group. Records of host values (Communicator::gather_host) are
// not counted.
//   const RankExchanges before = exchanges_of(place); ...; const RankExchanges step = exchanges_of(place) - before;
#pragma once
#include <array>
#include <string_view>

#include "parallel/rank_place.h"

namespace lockstep {

enum class Collective { exchange, all_gather, broadcast, all_reduce, reduce_scatter };
inline constexpr int kCollectives = 5;
inline constexpr std::array<std::string_view, kCollectives> kCollectiveNames = {"exchange", "all_gather", "broadcast", "all_reduce", "reduce_scatter"};
using ExchangeCounts = std::array<CommunicatorCounters, kCollectives>;

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
  void count_bytes(std::int64_t bytes) {
    counters_.bytes += bytes;
    current().bytes += bytes;
  }

 private:
  CommunicatorCounters& current() { return by_operation_[static_cast<std::size_t>(CollectiveScope::current())]; }
  ExchangeCounts by_operation_{};
};

enum class RankGroup { world, tensor, model, data, stages, before, after, context };
inline constexpr int kRankGroups = 8;
inline constexpr std::array<std::string_view, kRankGroups> kRankGroupNames = {"world", "tensor", "model", "data", "stages", "before", "after", "context"};

struct RankExchanges {
  std::array<ExchangeCounts, kRankGroups> groups{};
  const CommunicatorCounters& of(RankGroup group, Collective what) const { return groups[static_cast<std::size_t>(group)][static_cast<std::size_t>(what)]; }
  CommunicatorCounters sum(RankGroup group) const;
  CommunicatorCounters sum() const;  // of all groups
  RankExchanges operator-(const RankExchanges& earlier) const;
  // The first count that differs ("model all_reduce: 3 calls, 96 bytes are not 3 calls, 64 bytes"); empty: all are equal.
  std::string difference(const RankExchanges& other) const;
};
// Of a rank so far: zeros for groups of one (null), and for transports that do not count by operation.
RankExchanges exchanges_of(const RankPlace& place);

}  // namespace lockstep
