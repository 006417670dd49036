// What the ranks of a run exchange in a step, for its metrics.
//   RankTraffic traffic(trainer.ranks()); ... traffic.tell(metrics, seconds);
#pragma once
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "parallel/exchange_counts.h"
#include "train/rank_runtimes.h"

namespace lockstep {

class RankTraffic {
 public:
  explicit RankTraffic(std::shared_ptr<RankRuntimes> ranks);
  // Adds what this process's ranks received and waited, together, since the last call: `ranks_bytes`, `ranks_sent_bytes` and `ranks_waited_seconds`; the
  // rest of these seconds times their number, `ranks_computed_seconds`; and `ranks_exchanges`, by group and operation. Of one rank: nothing. Between two
  // calls of its trainer.
  void tell(nlohmann::ordered_json& metrics, double seconds);

 private:
  std::shared_ptr<RankRuntimes> ranks_;
  std::vector<RankExchanges> before_;  // by local rank
};

}  // namespace lockstep
