#include "parallel/layout.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "parallel/planned_layout.h"

namespace lockstep {
namespace {

std::string refusal(const std::string& text) {
  try {
    rank_layout(text);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::invalid_argument);
    return e.what();
  }
  return "";
}

TEST(RankLayout, ReadsAnyOrderAndSubset) {
  EXPECT_EQ(rank_layout(""), (RankLayout{1, 1, 1}));
  EXPECT_EQ(rank_layout("dp=3"), (RankLayout{1, 3, 1}));
  EXPECT_EQ(rank_layout("ep=2,tp=4,dp=8"), (RankLayout{4, 8, 2}));
  EXPECT_EQ(rank_layout("tp=2,dp=2").text(), "tp=2,dp=2,ep=1");
  EXPECT_EQ(rank_layout("pp=3,dp=2"), (RankLayout{1, 2, 1, 3}));
  EXPECT_EQ(rank_layout("pp=3,dp=2").text(), "tp=1,dp=2,ep=1,pp=3");
  EXPECT_EQ(rank_layout("cp=3,dp=2"), (RankLayout{.dp = 2, .cp = 3}));
  EXPECT_EQ(rank_layout("cp=3,dp=2").text(), "tp=1,dp=2,ep=1,cp=3");
  EXPECT_EQ(rank_layout("shard=weights,dp=2"), (RankLayout{.dp = 2, .shard = RankShard::weights}));
  EXPECT_EQ(rank_layout("shard=weights,dp=2,pp=2").text(), "tp=1,dp=2,ep=1,pp=2,shard=weights");
  EXPECT_EQ(rank_layout(rank_layout("shard=weights,dp=2").text()), rank_layout("shard=weights,dp=2"));
  EXPECT_EQ(rank_layout("dp=2,shard=state"), rank_layout("dp=2"));
  EXPECT_EQ(rank_layout("rows=dealt,dp=2,ep=3"), (RankLayout{.dp = 2, .ep = 3, .rows = ReplicaRows::dealt}));
  EXPECT_EQ(rank_layout("rows=dealt,ep=3").text(), "tp=1,dp=1,ep=3,rows=dealt");
  EXPECT_EQ(rank_layout(rank_layout("rows=dealt,ep=3").text()), rank_layout("rows=dealt,ep=3"));
  EXPECT_EQ(rank_layout("ep=3,rows=shared"), rank_layout("ep=3"));
}

TEST(RankLayout, RowsAreDealtWhereRanksShareExperts) {
  EXPECT_TRUE(rank_layout("ep=2,rows=dealt").deals_rows());
  EXPECT_FALSE(rank_layout("dp=2,rows=dealt").deals_rows());
  EXPECT_FALSE(rank_layout("ep=2").deals_rows());
  for (const char* beside : {"tp=2", "pp=2", "cp=2", "dp=2,shard=weights"})
    EXPECT_NE(refusal(std::string("ep=2,rows=dealt,") + beside).find("rows=dealt is allowed beside ep and dp"), std::string::npos) << beside;
}

TEST(RankLayout, WeightsAreInSharesWhereThereAreReplicas) {
  EXPECT_TRUE(rank_layout("dp=2,shard=weights").shards_weights());
  EXPECT_TRUE(rank_layout("cp=2,shard=weights").shards_weights());
  EXPECT_FALSE(rank_layout("tp=2,shard=weights").shards_weights());
  EXPECT_FALSE(rank_layout("dp=2").shards_weights());
}

TEST(RankLayout, RefusesWhatItDoesNotKnow) {
  EXPECT_NE(refusal("tpp=2").find("did you mean"), std::string::npos) << refusal("tpp=2");
  for (const char* text : {"tp=0",
                           "tp=65",
                           "tp=",
                           "tp",
                           "tp=2x",
                           "tp=-1",
                           "tp=99999999999999",
                           "tp=2,tp=2",
                           "tp=2,",
                           ",",
                           "=",
                           "tp=8,dp=8,ep=2",
                           "tp=8,dp=8,pp=2",
                           "tp=8,dp=8,cp=2",
                           "tp=2 ,dp=2",
                           "shard=2",
                           "shard=",
                           "shard",
                           "shard=state,shard=state",
                           "rows=2",
                           "rows",
                           "rows=dealt,rows=dealt",
                           "dp=2,shard=weights,"})
    EXPECT_NE(refusal(text), "") << text;
  EXPECT_NE(refusal("dp=2,shard=weight").find("allowed are state and weights; did you mean 'weights'?"), std::string::npos) << refusal("dp=2,shard=weight");
  EXPECT_NE(refusal("ep=2,rows=deal").find("allowed are shared and dealt; did you mean 'dealt'?"), std::string::npos) << refusal("ep=2,rows=deal");
  EXPECT_NE(refusal("tp=8,dp=8,ep=2").find("at most 64"), std::string::npos);
}

TEST(RankLayout, PlansTakeMoreRanksThanRuns) {
  EXPECT_EQ(planned_layout("dp=1024").size(), 1024);
  EXPECT_EQ(planned_layout("tp=8,pp=16,dp=4,cp=2,shard=weights"), (RankLayout{.tp = 8, .dp = 4, .pp = 16, .cp = 2, .shard = RankShard::weights}));
  EXPECT_EQ(planned_layout("tp=2,dp=2"), rank_layout("tp=2,dp=2"));
  EXPECT_NE(refusal("dp=65").find("'dp' is '65', allowed is 1 to 64; plan and simulate take up to 1024"), std::string::npos) << refusal("dp=65");
  EXPECT_NE(refusal("dp=64,tp=2").find("at most 64 in all; plan and simulate take up to 1024"), std::string::npos) << refusal("dp=64,tp=2");
  for (const char* text : {"dp=1025", "dp=1024,tp=2", "dp=0", "dp=32,tp=32,pp=2"}) EXPECT_THROW(planned_layout(text), Error) << text;
}

TEST(RankLayout, FewRanksStandForALargeLayout) {
  EXPECT_EQ(planned_ranks({2, 2, 1}), (std::vector<int>{0, 1, 2, 3}));
  EXPECT_EQ(planned_ranks({.dp = 64}).size(), 64u);
  EXPECT_EQ(planned_ranks({.dp = 1024}), (std::vector<int>{0, 1023}));
  EXPECT_EQ(planned_ranks({.tp = 2, .dp = 64}), (std::vector<int>{0, 1, 126, 127}));
  EXPECT_EQ(planned_ranks({.dp = 16, .cp = 8}), (std::vector<int>{0, 7, 127}));
  // Two ranks of each of eight stages, of ten, in the first and the last replica.
  const std::vector<int> staged = planned_ranks({.tp = 4, .dp = 3, .pp = 10});
  EXPECT_EQ(staged.size(), 2u * 8 * 2);
  EXPECT_EQ(std::vector<int>(staged.begin(), staged.begin() + 4), (std::vector<int>{0, 3, 4, 7}));
  EXPECT_EQ(std::vector<int>(staged.begin() + 12, staged.begin() + 18), (std::vector<int>{24, 27, 36, 39, 80, 83}));
  EXPECT_EQ(planned_ranks({.tp = 2, .dp = 4, .pp = 16, .cp = 8}).size(), 48u);
}

TEST(RankLayout, EveryRankHasItsPlace) {
  const RankLayout layout{2, 3, 2};
  EXPECT_EQ(layout.size(), 12);
  EXPECT_EQ(layout.tensor_of(7), 1);
  EXPECT_EQ(layout.model_of(7), 3);
  EXPECT_EQ(layout.data_of(7), 1);
  EXPECT_TRUE(layout.links().empty());
}

TEST(RankLayout, StagesStandBetweenExpertsAndReplicas) {
  const RankLayout layout{2, 2, 1, 3};
  EXPECT_EQ(layout.size(), 12);
  EXPECT_EQ(layout.model(), 2);
  EXPECT_EQ(layout.replica(), 6);
  EXPECT_EQ(layout.tensor_of(9), 1);
  EXPECT_EQ(layout.stage_of(9), 1);
  EXPECT_EQ(layout.replica_of(9), 3);
  EXPECT_EQ(layout.data_of(9), 1);
  EXPECT_EQ(layout.peers_of(9), layout.peers_of(7));
  EXPECT_NE(layout.peers_of(9), layout.peers_of(3));  // of the other replica
  EXPECT_EQ(layout.links(), (std::vector<std::pair<int, int>>{{0, 2}, {1, 3}, {2, 4}, {3, 5}, {6, 8}, {7, 9}, {8, 10}, {9, 11}}));
}

TEST(RankLayout, PiecesStandBetweenStagesAndReplicas) {
  const RankLayout layout{.tp = 2, .dp = 2, .pp = 2, .cp = 3};
  EXPECT_EQ(layout.size(), 24);
  EXPECT_EQ(layout.replica(), 4);
  EXPECT_EQ(layout.data(), 6);
  EXPECT_EQ(layout.data_of(21), 5);
  EXPECT_EQ(layout.context_of(21), 2);
  EXPECT_EQ(layout.fellows_of(21), layout.fellows_of(13));
  EXPECT_NE(layout.fellows_of(21), layout.fellows_of(9));   // of the other group
  EXPECT_NE(layout.fellows_of(21), layout.fellows_of(20));  // of another share of the model
}

}  // namespace
}  // namespace lockstep
