#include "runs/rank_traffic.h"

#include <algorithm>

namespace lockstep {

RankTraffic::RankTraffic(std::shared_ptr<RankRuntimes> ranks) : ranks_(std::move(ranks)) {
  for (int local = 0; local < ranks_->ranks().local(); ++local) before_.push_back(exchanges_of(ranks_->ranks().place(local)));
}

void RankTraffic::tell(nlohmann::ordered_json& metrics, double seconds) {
  if (ranks_->ranks().size() == 1) return;
  ExchangeCounters step;
  RankExchanges all;
  for (std::size_t local = 0; local < before_.size(); ++local) {
    const RankExchanges now = exchanges_of(ranks_->ranks().place(static_cast<int>(local)));
    const RankExchanges own = now - before_[local];
    step += own.sum();
    for (std::size_t g = 0; g < kRankGroups; ++g)
      for (std::size_t c = 0; c < kCollectives; ++c) all.groups[g][c] += own.groups[g][c];
    before_[local] = now;
  }
  metrics["ranks_bytes"] = step.bytes;
  metrics["ranks_sent_bytes"] = step.sent;
  metrics["ranks_waited_seconds"] = step.waited;
  metrics["ranks_computed_seconds"] = std::max(0.0, seconds * static_cast<double>(before_.size()) - step.waited);
  nlohmann::ordered_json& exchanges = metrics["ranks_exchanges"] = nlohmann::ordered_json::array();
  for (std::size_t g = 0; g < kRankGroups; ++g)
    for (std::size_t c = 0; c < kCollectives; ++c)
      if (const ExchangeCounters& own = all.groups[g][c]; own.calls > 0 || own.waited > 0)
        exchanges.push_back({{"group", kRankGroupNames[g]},
                             {"operation", kCollectiveNames[c]},
                             {"calls", own.calls},
                             {"bytes", own.bytes},
                             {"sent_bytes", own.sent},
                             {"waited_seconds", own.waited}});
}

}  // namespace lockstep
