#include "cli/common_options.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace lockstep {
namespace {

// A layout of a command that samples: what helps training steps alone is left out, and it says so.
TEST(TrainingRanks, AreLeftOutWhereNothingIsTrained) {
  const auto kept = [](std::string ranks, std::string& said) {
    testing::internal::CaptureStderr();
    leave_training_ranks_out(ranks);
    said = testing::internal::GetCapturedStderr();
    return ranks;
  };
  std::string said;
  for (const auto& [wished, used] : {std::pair{"dp=2", "tp=1,dp=1,ep=1"},
                                     {"tp=2,cp=2", "tp=2,dp=1,ep=1"},
                                     {"tp=2,dp=3,ep=2,pp=2,cp=2", "tp=2,dp=1,ep=2,pp=2"},
                                     {"tp=2,dp=2,shard=weights", "tp=2,dp=1,ep=1"},
                                     {"tp=2,shard=weights", "tp=2,dp=1,ep=1"},
                                     {"ep=2,rows=dealt", "tp=1,dp=1,ep=2"}}) {
    EXPECT_EQ(kept(wished, said), used);
    EXPECT_NE(said.find("nothing is trained here"), std::string::npos) << said;
    EXPECT_NE(said.find(rank_layout(wished).text()), std::string::npos) << said;
  }
  for (const char* ranks : {"", "tp=2", "tp=2,ep=2,pp=2", "tp=2,shard=state"}) {
    EXPECT_EQ(kept(ranks, said), ranks);
    EXPECT_EQ(said, "");
  }
  std::string wrong = "sp=2";
  EXPECT_THROW(leave_training_ranks_out(wrong), Error);
}

}  // namespace
}  // namespace lockstep
