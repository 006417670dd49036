// What ranks did is told by rank, of models and critics together; of one rank nothing.
#include "host/rank_totals.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

RankUse use_of(int process, double worked, double waited, double moved, std::int64_t bytes) {
  RankUse use;
  use.process = process, use.worked = worked;
  use.host_name[0] = 'a';
  ExchangeCounters& counters = use.exchanges.groups[0][0];
  counters.waited = waited, counters.moved = moved, counters.sent = bytes;
  return use;
}

std::string scraped(const RankTotals& totals) {
  PrometheusText text;
  totals.append(text);
  return text.take();
}

TEST(RankTotals, SourcesAreAddedAndTheNewestCounts) {
  RankTotals totals;
  EXPECT_EQ(scraped(totals), "");
  int models = 0, critics = 0;
  totals.take(&models, {});
  EXPECT_EQ(scraped(totals), "");  // one rank
  totals.take(&models, {use_of(0, 9, 9, 9, 9), use_of(1, 9, 9, 9, 9)});
  totals.take(&models, {use_of(0, 8, 2, 1, 100), use_of(1, 7, 3, 0.5, 50)});
  totals.take(&critics, {use_of(0, 4, 1, 1, 10), use_of(1, 4, 1, 1, 5)});
  const std::string text = scraped(totals);
  for (const char* line : {"lockstep_rank_computed_seconds_total{rank=\"0\",process=\"0\",host=\"a\"} 7\n",
                           "lockstep_rank_computed_seconds_total{rank=\"1\",process=\"1\",host=\"a\"} 5.5\n",
                           "lockstep_rank_waited_seconds_total{rank=\"0\",process=\"0\",host=\"a\"} 3\n",
                           "lockstep_rank_sent_seconds_total{rank=\"1\",process=\"1\",host=\"a\"} 1.5\n",
                           "lockstep_rank_received_bytes_total{rank=\"0\",process=\"0\",host=\"a\"} 110\n"})
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
}

}  // namespace
}  // namespace lockstep
