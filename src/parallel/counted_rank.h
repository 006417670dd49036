// One rank of a layout without the others: exchanges are counted, and receive nothing. For plans, on a backend that computes nothing. A rank's calls
// and sizes do not depend on what others send, so its counts of calls and bytes are those of a real run; accumulators count as sent as they
// stand in memory, the most that they may take. No threads.
//   RankRuntimes(runtime, layout, std::make_unique<CountedRank>(layout, 3, std::vector<std::size_t>(layout.size(), 4096)));
#pragma once
#include <memory>

#include "parallel/exchange_counts.h"
#include "parallel/ranks.h"

namespace lockstep {

class CountedRank final : public Ranks {
 public:
  // What gather_host returns for each other rank is zero bytes: as many as its `record_bytes` where results are gathered (over replicas and stages; over all
  // ranks with rows=dealt), elsewhere 256, room for some numbers. `meanwhile`: exchanges count as those of processes (moves_meanwhile), else of threads.
  CountedRank(const RankLayout& layout, int rank, const std::vector<std::size_t>& record_bytes, bool meanwhile = false);
  const RankLayout& layout() const override { return layout_; }
  int local() const override { return 1; }
  RankPlace place(int local) const override;
  void run(const std::function<void(int)>& work) override { work(0); }
  bool moves_meanwhile() const override { return meanwhile_; }

 private:
  RankLayout layout_;
  int rank_;
  bool meanwhile_;
  std::unique_ptr<Communicator> world_, tensor_, model_, data_, stages_, before_, after_, context_;
};

}  // namespace lockstep
