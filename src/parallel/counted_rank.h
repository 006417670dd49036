// One rank of a layout without the others: exchanges are counted, and receive nothing. For plans, on a backend that computes nothing. A rank's calls
// and sizes do not depend on what others send, so its counts of calls and bytes are those of a real run; accumulators count as sent as they
// stand in memory, the most that they may take. No threads.
//   CountedRank ranks(layout, 3, 4096); Trainer trainer(runtime, {}, options, std::make_unique<CountedRank>(...));
#pragma once
#include <memory>

#include "parallel/exchange_counts.h"
#include "parallel/ranks.h"

namespace lockstep {

class CountedRank final : public Ranks {
 public:
  // `record_bytes`: what gather_host returns for each other rank is this many zero bytes.
  CountedRank(const RankLayout& layout, int rank, std::size_t record_bytes);
  const RankLayout& layout() const override { return layout_; }
  int local() const override { return 1; }
  RankPlace place(int local) const override;
  void run(const std::function<void(int)>& work) override { work(0); }

 private:
  RankLayout layout_;
  int rank_;
  std::unique_ptr<Communicator> world_, tensor_, model_, data_, stages_, before_, after_, context_;
};

}  // namespace lockstep
