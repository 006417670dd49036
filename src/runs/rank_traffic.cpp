#include "runs/rank_traffic.h"

namespace lockstep {

namespace {
std::vector<RankUse> uses_of(LocalTrainer& trainer) {
  return trainer.with_model([](TrainedModel& model) { return model.rank_uses(); });
}

void add_use(RankUse& to, const RankUse& more) {
  for (std::size_t g = 0; g < kRankGroups; ++g)
    for (std::size_t c = 0; c < kCollectives; ++c) to.exchanges.groups[g][c] += more.exchanges.groups[g][c];
  to.worked += more.worked;
}

nlohmann::ordered_json exchanges_json(const RankExchanges& all) {
  nlohmann::ordered_json exchanges = nlohmann::ordered_json::array();
  for (std::size_t g = 0; g < kRankGroups; ++g)
    for (std::size_t c = 0; c < kCollectives; ++c)
      if (const ExchangeCounters& own = all.groups[g][c]; own.calls > 0 || own.waited > 0)
        exchanges.push_back({{"group", kRankGroupNames[g]},
                             {"operation", kCollectiveNames[c]},
                             {"calls", own.calls},
                             {"bytes", own.bytes},
                             {"sent_bytes", own.sent},
                             {"waited_seconds", own.waited},
                             {"sent_seconds", own.moved}});
  return exchanges;
}
}  // namespace

RankTraffic::RankTraffic(const std::vector<LocalTrainer*>& trainers) {
  for (LocalTrainer* trainer : trainers)
    if (trainer) sources_.push_back({trainer, uses_of(*trainer)});
}

void RankTraffic::tell(nlohmann::ordered_json& metrics) {
  std::vector<RankUse> step;
  double saving = 0;
  for (Source& source : sources_) {
    saving += source.trainer->checkpoints().take_seconds();
    const std::vector<RankUse> now = uses_of(*source.trainer);
    for (std::size_t rank = 0; rank < now.size(); ++rank) {
      const RankUse own = now[rank] - source.before[rank];
      if (rank == step.size()) step.push_back(own);
      else add_use(step[rank], own);
    }
    source.before = now;
  }
  if (step.empty()) return;
  RankUse here;
  double computed = 0;
  nlohmann::ordered_json ranks = nlohmann::ordered_json::array();
  for (std::size_t rank = 0; rank < step.size(); ++rank) {
    const RankUse& own = step[rank];
    if (own.process == 0) add_use(here, own), computed += own.computed();
    ranks.push_back({{"rank", rank},
                     {"process", own.process},
                     {"host", own.host()},
                     {"computed_seconds", own.computed()},
                     {"waited_seconds", own.waited()},
                     {"sent_seconds", own.sent()},
                     {"sent_bytes", own.sent_bytes()}});
  }
  const ExchangeCounters all = here.exchanges.sum();
  metrics["ranks_layout"] = sources_.front().trainer->ranks()->ranks().layout().text();
  metrics["ranks_bytes"] = all.bytes;
  metrics["ranks_sent_bytes"] = all.sent;
  metrics["ranks_computed_seconds"] = computed;
  metrics["ranks_waited_seconds"] = all.waited;
  metrics["ranks_sent_seconds"] = all.moved;
  metrics["ranks_saving_seconds"] = saving;
  metrics["ranks_exchanges"] = exchanges_json(here.exchanges);
  metrics["ranks_each"] = std::move(ranks);
}

}  // namespace lockstep
