// Where a rank's time goes is told of every rank, wherever it is: it computes, waits for others, or moves what is sent.
#include "parallel/rank_use.h"

#include <gtest/gtest.h>

#include <thread>

#include "parallel/collectives.h"
#include "parallel/memory_wire_test_tools.h"
#include "parallel/thread_ranks.h"

namespace lockstep {
namespace {

constexpr auto kWork = std::chrono::milliseconds(150);

// Rank 1 works, the others wait for it; then all have a megabyte of each.
void uneven_work(Ranks& ranks) {
  ranks.run([&](int local) {
    const RankPlace place = ranks.place(local);
    Device device(BackendKind::cpu, 1);
    const Buffer all = device.allocate_zero(DType::f32, place.world->size() * 256, 1024, MemoryCategory::workspace);
    std::vector<View> parts;
    for (int r = 0; r < place.world->size(); ++r) parts.push_back(all.view().row_range(r * 256, 256));
    place.world->barrier();  // however late a thread begins
    if (place.rank == 1) std::this_thread::sleep_for(kWork);
    all_gather(*place.world, device.stream(), parts[static_cast<std::size_t>(place.rank)], parts);
  });
}

void expect_uneven(const std::vector<RankUse>& uses, int processes) {
  const double work = std::chrono::duration<double>(kWork).count();
  ASSERT_EQ(uses.size(), 3u);
  for (std::size_t rank = 0; rank < uses.size(); ++rank) {
    SCOPED_TRACE(rank);
    const RankUse& use = uses[rank];
    EXPECT_NEAR(use.computed() + use.waited() + use.sent(), use.worked, 1e-9);
    EXPECT_GT(use.worked, 0.5 * work);
    EXPECT_GT(use.sent(), 0);
    EXPECT_EQ(use.sent_bytes(), 2 * 1024 * 1024);
    EXPECT_EQ(use.process, processes == 1 ? 0 : static_cast<int>(rank));
    EXPECT_FALSE(use.host().empty());
    if (rank == 1) EXPECT_GT(use.computed(), 0.9 * work);
    else EXPECT_GT(use.waited(), 0.5 * work);
  }
}

TEST(RankUses, ThreadsTellTheirsAndSoDoProcesses) {
  ThreadRanks threads({.dp = 3});
  uneven_work(threads);
  expect_uneven(rank_uses(threads), 1);
  std::vector<std::vector<RankUse>> told(3);
  as_processes(3, [&](ProcessMail& mail) {
    ProcessRanks ranks({.dp = 3}, mail);
    uneven_work(ranks);
    told[static_cast<std::size_t>(mail.process())] = rank_uses(ranks);
  });
  for (const std::vector<RankUse>& uses : told) {
    expect_uneven(uses, 3);
    for (std::size_t rank = 0; rank < 3; ++rank) {
      EXPECT_EQ(uses[rank].worked, told[0][rank].worked);
      EXPECT_EQ(uses[rank].waited(), told[0][rank].waited());
    }
  }
}

TEST(RankUses, AStepIsTheDifferenceOfTwoMoments) {
  ThreadRanks threads({.dp = 3});
  uneven_work(threads);
  const std::vector<RankUse> before = rank_uses(threads);
  uneven_work(threads);
  const std::vector<RankUse> after = rank_uses(threads);
  std::vector<RankUse> step;
  for (std::size_t rank = 0; rank < after.size(); ++rank) step.push_back(after[rank] - before[rank]);
  expect_uneven(step, 1);
  EXPECT_EQ(after[0].sent_bytes(), 2 * step[0].sent_bytes());
}

TEST(RankUses, OneRankTellsNothing) {
  ThreadRanks one({});
  EXPECT_TRUE(rank_uses(one).empty());
}

}  // namespace
}  // namespace lockstep
