// The checker of countdown-checked: what it takes back, how often, and that it looks at arithmetic alone.
#include <gtest/gtest.h>

#include "rl/environment.h"

namespace lockstep {
namespace {

TEST(CheckedCountdown, AStepThatIsWrongIsTakenBackThreeTimes) {
  const auto environment = make_environment("countdown-checked");
  const Problem problem = environment->problem(Split::held_out, 1, 0);
  const auto episode = environment->begin(problem);
  const auto takes_back = [&](std::string_view answer) -> std::int64_t {
    const AnswerCheck said = episode->check(answer);
    return said.kind == AnswerCheck::Kind::roll_back ? static_cast<std::int64_t>(said.keep) : -1;
  };
  for (const char* right :
       {"7-3=4", "12*4=48", "12/4=3", "7+0=7", "7-3=4,12*4=48", "12*12=1", "12*12=14", "99*9=89", "3+4+5=12", "(3+4)=9", "x=3", "=3", "3=3", "7-3=", ""})
    EXPECT_EQ(takes_back(right), -1) << right;
  EXPECT_EQ(takes_back("7-3=5"), 4);  // the result alone, at first
  EXPECT_EQ(takes_back("3-7=4"), 4);  // no sign
  EXPECT_EQ(takes_back("7/2=3"), 0);
  EXPECT_EQ(takes_back("7/0=0"), -1);  // the fourth time
  EXPECT_EQ(takes_back("7-3=4,12*4=47"), 11);
  EXPECT_EQ(takes_back("7-3=4,12*4=4800"), 11);
  EXPECT_EQ(takes_back("7-3=4,1/0=1"), 6);
  EXPECT_EQ(takes_back("7-3=4,12*4=47"), -1);
  // Another episode begins anew, and grades as countdown does.
  const auto other = environment->begin(problem);
  EXPECT_EQ(other->check("7-3=5").kind, AnswerCheck::Kind::roll_back);
  EXPECT_EQ(other->step(other->reference()).reward, 1);
  EXPECT_EQ(environment->problem(Split::held_out, 1, 0).prompt, make_environment("countdown")->problem(Split::held_out, 1, 0).prompt);
}

}  // namespace
}  // namespace lockstep
