#include "launch/host_pool.h"

#include <gtest/gtest.h>

#include "launch/restart_rule.h"

namespace lockstep {
namespace {

using PoolHosts = std::vector<Host>;
using PoolNames = std::vector<std::string>;

TEST(HostPool, ALostProcessTakesItsSlotAndASilentHostAll) {
  HostPool pool({{"a", 2}, {"b", 3}}, {});
  pool.lose_slot(1, 0);
  EXPECT_EQ(pool.usable(), (PoolHosts{{"a", 2}, {"b", 2}}));
  pool.lose_host(1, 0);
  EXPECT_EQ(pool.usable(), (PoolHosts{{"a", 2}}));
  pool.lose_slot(0, 0);
  pool.lose_slot(0, 0);
  EXPECT_TRUE(pool.usable().empty());
}

TEST(HostPool, AHostIsAskedAfterItsWaitAndTakenBackOnce) {
  HostPool pool({{"a", 2}, {"b", 2}}, {.first_wait = 10, .most_losses = 3});
  EXPECT_TRUE(pool.to_ask(1e9).empty()) << "nobody is lost";
  pool.lose_slot(1, 100);
  EXPECT_TRUE(pool.to_ask(109).empty());
  EXPECT_EQ(pool.to_ask(110), std::vector<int>{1});
  EXPECT_FALSE(pool.somebody_waits()) << "it has not answered";
  EXPECT_TRUE(pool.take_back().empty());
  pool.answered(1, false, 111);
  EXPECT_TRUE(pool.to_ask(120).empty()) << "no answer begins another wait";
  EXPECT_EQ(pool.to_ask(121), std::vector<int>{1});
  pool.answered(1, true, 121);
  EXPECT_TRUE(pool.to_ask(500).empty()) << "it is known to answer";
  EXPECT_TRUE(pool.somebody_waits());
  EXPECT_EQ(pool.usable(), (PoolHosts{{"a", 2}, {"b", 1}})) << "not before a checkpoint";
  EXPECT_EQ(pool.take_back(), PoolNames{"b"});
  EXPECT_EQ(pool.usable(), (PoolHosts{{"a", 2}, {"b", 2}}));
  EXPECT_FALSE(pool.somebody_waits());
}

TEST(HostPool, TheWaitDoublesWithEachLossAndThenAHostIsLeftOut) {
  HostPool pool({{"a", 1}, {"b", 1}}, {.first_wait = 10, .most_losses = 2});
  pool.lose_host(1, 0);
  pool.answered(1, true, 10);
  pool.take_back();
  pool.lose_slot(1, 100);
  EXPECT_TRUE(pool.to_ask(119).empty());
  EXPECT_EQ(pool.to_ask(120), std::vector<int>{1});
  pool.answered(1, true, 120);
  pool.take_back();
  pool.lose_slot(1, 200);
  EXPECT_TRUE(pool.to_ask(1e9).empty()) << "lost three times, two are allowed";
  pool.answered(1, true, 1e9);
  EXPECT_TRUE(pool.take_back().empty());
  EXPECT_TRUE(pool.may_come_back().empty());
  EXPECT_EQ(pool.worst(), 1);
  EXPECT_EQ(pool.losses(1), 3);
}

TEST(HostPool, ACheckpointWithTheWholeHostForgetsALoss) {
  HostPool pool({{"a", 1}, {"b", 2}}, {.first_wait = 10, .most_losses = 1});
  for (int i = 0; i < 5; ++i) {
    pool.lose_slot(1, 100 * i);
    pool.checkpoint();  // with a part of it only
    EXPECT_EQ(pool.losses(1), 1);
    EXPECT_EQ(pool.to_ask(100 * i + 10), std::vector<int>{1});
    pool.answered(1, true, 100 * i + 10);
    EXPECT_EQ(pool.take_back(), PoolNames{"b"});
    pool.checkpoint();
    EXPECT_EQ(pool.losses(1), 0);
  }
}

TEST(HostPool, WhenNothingIsLeftWhoeverMayIsAskedAtOnce) {
  HostPool pool({{"a", 1}, {"b", 1}}, {.first_wait = 1000, .most_losses = 1});
  EXPECT_EQ(pool.worst(), -1);
  pool.lose_slot(0, 0);
  EXPECT_EQ(pool.usable(), (PoolHosts{{"b", 1}}));
  EXPECT_TRUE(pool.to_ask(0).empty());
  EXPECT_EQ(pool.may_come_back(), std::vector<int>{0});
  pool.answered(0, true, 0);
  EXPECT_EQ(pool.take_back(), PoolNames{"a"});
  pool.lose_slot(0, 0);
  EXPECT_TRUE(pool.may_come_back().empty()) << "for good";
}

TEST(HostPool, AProcessBelongsToTheHostThatItNamesOrElseToThatOfItsNumber) {
  HostPool pool({{"a.cluster", 2}, {"b", 2}, {"10.0.0.3", 1}}, {});
  EXPECT_EQ(pool.host_of(0, "b"), 1) << "its name decides";
  EXPECT_EQ(pool.host_of(3, "a"), 0) << "the name without its domain";
  EXPECT_EQ(pool.host_of(0, "vm"), 0) << "no such name: the first slots are the first host's";
  EXPECT_EQ(pool.host_of(2, "vm"), 1);
  EXPECT_EQ(pool.host_of(4, "vm"), 2);
  EXPECT_EQ(pool.host_of(5, "vm"), -1);
  pool.lose_slot(0, 0);
  EXPECT_EQ(pool.host_of(1, "vm"), 1) << "slots out of use have no process";
}

TEST(RestartRule, TheFirstRestartIsAtOnceAndTheWaitDoubles) {
  RestartRule rule(5, 2);
  EXPECT_EQ(rule.after_loss(false), 0);
  EXPECT_EQ(rule.after_loss(false), 2);
  EXPECT_EQ(rule.after_loss(false), 4);
  EXPECT_EQ(rule.after_loss(false), 8);
  EXPECT_EQ(rule.after_loss(false), 16);
  EXPECT_EQ(rule.after_loss(false), std::nullopt);
}

TEST(RestartRule, ANewCheckpointBeginsTheCountAnew) {
  RestartRule rule(1, 2);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(rule.after_loss(true), 0);
  EXPECT_EQ(rule.after_loss(false), std::nullopt);
  EXPECT_EQ(RestartRule(0, 2).after_loss(true), std::nullopt) << "none is allowed";
}

TEST(RestartRule, TheWaitEndsAtFiveMinutes) {
  RestartRule rule(40, 1);
  std::optional<double> wait;
  for (int i = 0; i < 40; ++i) wait = rule.after_loss(false);
  EXPECT_EQ(wait, 300);
}

}  // namespace
}  // namespace lockstep
