#include "host/rank_totals.h"

#include <string>
#include <utility>

namespace lockstep {

void RankTotals::take(const void* source, std::vector<RankUse> uses) {
  if (uses.empty()) return;
  const auto held = newest_.lock();
  (*held)[source] = std::move(uses);
}

void RankTotals::append(PrometheusText& text) const {
  struct Total {
    std::string rank, process, host;
    double computed = 0, waited = 0, sent = 0, bytes = 0;
  };
  std::vector<Total> totals;
  {
    const auto held = newest_.lock();
    for (const auto& [source, uses] : *held)
      for (std::size_t rank = 0; rank < uses.size(); ++rank) {
        const RankUse& use = uses[rank];
        if (rank == totals.size()) totals.push_back({std::to_string(rank), std::to_string(use.process), use.host()});
        Total& total = totals[rank];
        total.computed += use.computed(), total.waited += use.waited(), total.sent += use.sent(), total.bytes += static_cast<double>(use.sent_bytes());
      }
  }
  if (totals.empty()) return;
  const auto each = [&](double Total::*figure) {
    for (const Total& total : totals) text.sample({{"rank", total.rank}, {"process", total.process}, {"host", total.host}}, total.*figure);
  };
  text.family("lockstep_rank_computed_seconds_total", "counter",
              "Seconds in which each rank of the trainers computed, up to the newest optimizer step (docs/ranks.md).");
  each(&Total::computed);
  text.family("lockstep_rank_waited_seconds_total", "counter", "Seconds in which each rank waited for others and for what they send.");
  each(&Total::waited);
  text.family("lockstep_rank_sent_seconds_total", "counter", "Seconds in which each rank packed, copied and unpacked what was sent and received.");
  each(&Total::sent);
  text.family("lockstep_rank_received_bytes_total", "counter", "Bytes that each rank received, as they travelled.");
  each(&Total::bytes);
}

}  // namespace lockstep
