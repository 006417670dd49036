#include "launch/host_questions.h"

#include <gtest/gtest.h>

#include <map>

namespace lockstep {
namespace {

// The remote shell is a program that is given a host and a command; these decide by the host's name.
TEST(HostQuestions, SayWhoAnswers) {
  HostQuestions questions({.agent = "test x ="}, 30);  // `test x = HOST true`: more words than it takes, which is no answer
  questions.ask(0, "localhost", 0);
  questions.ask(1, "b", 0);
  questions.ask(1, "b", 0);
  std::map<int, bool> found;
  while (questions.open())
    for (const auto& [host, answers] : questions.answers(0)) {
      EXPECT_FALSE(found.contains(host)) << "asked twice";
      found[host] = answers;
    }
  EXPECT_EQ(found, (std::map<int, bool>{{0, true}, {1, false}}));
  HostQuestions others({.agent = "env"}, 30);  // `env a=b true`: every host whose name is a variable's answers
  others.ask(5, "a=b", 0);
  while (others.open())
    for (const auto& [host, answers] : others.answers(0)) EXPECT_TRUE(host == 5 && answers);
}

TEST(HostQuestions, SilenceIsNoAnswer) {
  HostQuestions lasting({.agent = "tail --follow --retry /dev/null --lines"}, 6);  // `tail ... --lines 5 true` waits for a file of that name
  lasting.ask(2, "5", 100);
  EXPECT_TRUE(lasting.answers(105.9).empty());
  const auto found = lasting.answers(106);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_FALSE(found[0].second);
  EXPECT_FALSE(lasting.open());
}

}  // namespace
}  // namespace lockstep
