#include "base/burst.h"

#include <gtest/gtest.h>

#include <thread>

#include "base/entropy.h"

namespace lockstep {
namespace {

TEST(Burst, RunsOnceForEachAtTheEndOfTheOutermost) {
  int a = 0, b = 0;
  EXPECT_FALSE(Burst::put_off(&a, [&] { ++a; }));
  {
    const Burst outer;
    {
      const Burst inner;
      EXPECT_TRUE(Burst::put_off(&a, [&] { ++a; }));
      EXPECT_TRUE(Burst::put_off(&a, [&] { ++a; }));
      EXPECT_TRUE(Burst::put_off(&b, [&] { ++b; }));
    }
    EXPECT_EQ(a + b, 0);
    std::thread([&] { EXPECT_FALSE(Burst::put_off(&a, [] {})); }).join();  // another thread is in none
  }
  EXPECT_EQ(a, 1);
  EXPECT_EQ(b, 1);
  EXPECT_FALSE(Burst::put_off(&a, [&] { ++a; }));
}

TEST(Entropy, IsHardlyEverTheSame) { EXPECT_NE(random_bits(), random_bits()); }

}  // namespace
}  // namespace lockstep
