// What the ranks of a server's trainers have done since it was started, wherever they are, for metrics: they are asked after each optimizer step, and a
// scrape has the newest answer. Any thread.
//   RankTotals totals; totals.take(&ranks, rank_uses(ranks)); totals.append(text);
#pragma once
#include <map>
#include <vector>

#include "base/guarded.h"
#include "observe/prometheus.h"
#include "parallel/rank_use.h"

namespace lockstep {

class RankTotals {
 public:
  // `source`: whose they are; those of several (models, critics) are added up by rank. None of one rank.
  void take(const void* source, std::vector<RankUse> uses);
  // Nothing where there is one rank.
  void append(PrometheusText& text) const;

 private:
  Guarded<std::map<const void*, std::vector<RankUse>>> newest_;
};

}  // namespace lockstep
