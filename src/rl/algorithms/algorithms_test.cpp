#include "rl/algorithms/algorithms.h"

#include <gtest/gtest.h>

#include <set>

#include "base/error.h"

namespace lockstep {
namespace {

RlSettings with(std::string_view name, const std::set<std::string_view>& given = {}) {
  RlSettings s;
  apply_algorithm(name, s, [&](std::string_view option) { return given.contains(option); });
  return s;
}

TEST(Algorithms, EachIsMadeOfPartsThatThereAre) {
  std::set<std::string> described;
  for (const std::string& name : algorithm_names()) {
    const RlSettings s = with(name);
    EXPECT_NO_THROW(check(s)) << name;
    EXPECT_EQ(s.algorithm, name);
    EXPECT_TRUE(described.insert(describe(s)).second) << name << " is another by its parts";
  }
  EXPECT_EQ(describe(with("custom")), describe(RlSettings{}));
}

TEST(Algorithms, WhatTheUserSaysStays) {
  const RlSettings s = with("dapo", {"clip-high", "redraws"});
  EXPECT_EQ(s.clip_high, RlSettings{}.clip_high);
  EXPECT_EQ(s.redraws, 0);
  EXPECT_EQ(s.advantages, "group-normalised");
  EXPECT_EQ(s.loss, "dapo");
  EXPECT_EQ(s.overlong_tokens, 3);  // a fifth of 16
  EXPECT_EQ(with("dapo").redraws, 10);
}

TEST(Algorithms, AnUnknownNameIsAnswered) {
  try {
    with("gropo");
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("did you mean 'grpo'"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace lockstep
