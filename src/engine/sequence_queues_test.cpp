// Whatever runs and waits in whatever turn, both lists stand in order of arrival.
#include "engine/sequence_queues.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "base/philox.h"

namespace lockstep {
namespace {

bool stands_by_arrival(const std::vector<Sequence*>& queue) {
  return std::is_sorted(queue.begin(), queue.end(), [](const Sequence* a, const Sequence* b) { return a->id < b->id; });
}

TEST(SequenceQueues, StandByArrivalWhoeverRunsAndWaits) {
  std::array<Sequence, 12> all;
  SequenceQueues queues;
  for (std::size_t i = 0; i < all.size(); ++i) all[i].id = i + 1, queues.add(all[i]);
  RandomSequence draws(3, RandomStream::fuzz);
  int runs = 0, waits = 0;
  for (int turn = 0; turn < 200; ++turn) {
    Sequence& s = all[draws.below(static_cast<std::uint32_t>(all.size()))];
    ++(s.running ? waits : runs);
    if (s.running) queues.wait(s);
    else queues.run(s);
    EXPECT_TRUE(stands_by_arrival(queues.running()) && stands_by_arrival(queues.waiting())) << turn;
    EXPECT_EQ(queues.running().size() + queues.waiting().size(), all.size());
    EXPECT_TRUE(s.running || stands_by_arrival(queues.running_with(s)));
    EXPECT_EQ(queues.waiting_in_turn(Classes::by_shares), queues.waiting());  // they are nobody's
  }
  EXPECT_GT(waits, 50);
  EXPECT_GT(runs, waits);
  for (Sequence& s : all) queues.remove(s);
  EXPECT_TRUE(queues.empty());
}

}  // namespace
}  // namespace lockstep
