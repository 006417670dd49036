// What the ranks of a run did in a step, for its metrics: computed, waited, sent.
//   RankTraffic traffic({&trainer}); ... traffic.tell(metrics);
#pragma once
#include <nlohmann/json.hpp>
#include <vector>

#include "runs/local_trainer.h"

namespace lockstep {

class RankTraffic {
 public:
  // Of what these train, whose layouts are equal, together; null ones are left out. They outlive it.
  explicit RankTraffic(const std::vector<LocalTrainer*>& trainers);
  // Adds the layout, `ranks_layout`, and what was done since the last call: the seconds that saving took, `ranks_saving_seconds`; of the ranks of this process
  // together `ranks_bytes` and `ranks_sent_bytes` (received), `ranks_computed_seconds`, `ranks_waited_seconds` and `ranks_sent_seconds`, and `ranks_exchanges`,
  // by group and operation. Of each rank, wherever it is: `ranks_each`. Of one rank: nothing. Between two calls of the trainers.
  void tell(nlohmann::ordered_json& metrics);

 private:
  struct Source {
    LocalTrainer* trainer;
    std::vector<RankUse> before;
  };
  std::vector<Source> sources_;
};

}  // namespace lockstep
