#include "parallel/rank_use.h"

#include <algorithm>

namespace lockstep {

double RankUse::computed() const {
  const ExchangeCounters all = exchanges.sum();
  return std::max(0.0, worked - all.waited - all.moved);
}

RankUse RankUse::operator-(const RankUse& earlier) const {
  RankUse later = *this;
  later.exchanges = exchanges - earlier.exchanges;
  later.worked -= earlier.worked;
  return later;
}

std::vector<RankUse> rank_uses(Ranks& ranks) {
  if (ranks.size() == 1) return {};
  // Before the gather, which is itself a run in which ranks wait.
  std::vector<RankUse> local(static_cast<std::size_t>(ranks.local()));
  for (int l = 0; l < ranks.local(); ++l) {
    RankUse& own = local[static_cast<std::size_t>(l)];
    own.exchanges = exchanges_of(ranks.place(l)), own.worked = ranks.worked(l), own.process = ranks.process();
    const std::string host = ranks.host();
    std::copy_n(host.begin(), std::min(host.size(), own.host_name.size() - 1), own.host_name.begin());
  }
  return ranks.gather<RankUse>([&](int l) { return local[static_cast<std::size_t>(l)]; });
}

}  // namespace lockstep
