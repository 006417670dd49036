#include "parallel/exchange_counts.h"

#include "base/error.h"

namespace lockstep {

namespace {
thread_local Collective this_collective = Collective::exchange;

// f(group, operation), of all.
template <class F>
void each_count(const F& f) {
  for (std::size_t g = 0; g < kRankGroups; ++g)
    for (std::size_t c = 0; c < kCollectives; ++c) f(g, c);
}
}  // namespace

CollectiveScope::CollectiveScope(Collective what) : outer_(this_collective) {
  if (outer_ == Collective::exchange) this_collective = what;
}
CollectiveScope::~CollectiveScope() { this_collective = outer_; }
Collective CollectiveScope::current() { return this_collective; }

ExchangeCounters RankExchanges::sum(RankGroup group) const {
  ExchangeCounters all;
  for (const ExchangeCounters& own : groups[static_cast<std::size_t>(group)]) all += own;
  return all;
}

ExchangeCounters RankExchanges::sum() const {
  ExchangeCounters all;
  each_count([&](std::size_t g, std::size_t c) { all += groups[g][c]; });
  return all;
}

RankExchanges RankExchanges::operator-(const RankExchanges& earlier) const {
  RankExchanges later = *this;
  each_count([&](std::size_t g, std::size_t c) { later.groups[g][c] -= earlier.groups[g][c]; });
  return later;
}

std::string RankExchanges::difference(const RankExchanges& other) const {
  std::string first;
  each_count([&](std::size_t g, std::size_t c) {
    const ExchangeCounters &a = groups[g][c], &b = other.groups[g][c];
    if (first.empty() && (a.calls != b.calls || a.bytes != b.bytes))
      first = fmt::format("{} {}: {} calls, {} bytes are not {} calls, {} bytes", kRankGroupNames[g], kCollectiveNames[c], a.calls, a.bytes, b.calls, b.bytes);
  });
  return first;
}

RankExchanges exchanges_of(const RankPlace& place) {
  RankExchanges all;
  const Communicator* groups[] = {place.world, place.tensor, place.model, place.data, place.stages, place.before, place.after, place.context};
  for (std::size_t g = 0; g < kRankGroups; ++g)
    if (const auto* counting = dynamic_cast<const CountingCommunicator*>(groups[g])) all.groups[g] = counting->by_operation();
  return all;
}

}  // namespace lockstep
