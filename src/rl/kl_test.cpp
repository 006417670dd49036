#include "rl/kl.h"

#include <gtest/gtest.h>

#include <cmath>

namespace lockstep {
namespace {

TEST(Kl, EqualBitsGiveExactlyZero) {
  KlSums kl;
  for (const float x : {-0.0f, -0.3f, -7.25f, -30.0f}) kl.add(x, x, 0.2, 0.28);
  EXPECT_EQ(kl.tokens, 4);
  EXPECT_EQ(kl.different_bits, 0);
  EXPECT_EQ(kl.clipped, 0);
  for (const double k : {kl.k1(), kl.k2(), kl.k3()}) {
    EXPECT_EQ(k, 0.0);
    EXPECT_FALSE(std::signbit(k));
  }
}

TEST(Kl, EstimatorsAreThoseOfTheContract) {
  KlSums kl;
  const double l = std::log(1.5);
  kl.add(static_cast<float>(-1 + l), -1.0f, 0.2, 0.28);
  kl.add(static_cast<float>(-1 - l), -1.0f, 0.2, 0.28);
  const double up = static_cast<double>(static_cast<float>(-1 + l)) + 1, down = static_cast<double>(static_cast<float>(-1 - l)) + 1;
  EXPECT_NEAR(kl.k1(), -(up + down) / 2, 1e-15);
  EXPECT_NEAR(kl.k2(), (up * up + down * down) / 4, 1e-15);
  EXPECT_NEAR(kl.k3(), (std::exp(up) - 1 - up + std::exp(down) - 1 - down) / 2, 1e-15);
  EXPECT_EQ(kl.different_bits, 2);
  EXPECT_EQ(kl.clipped, 2);
  EXPECT_NEAR(kl.largest, l, 1e-6);
}

TEST(Kl, TheClipBoundsAreAsymmetric) {
  KlSums kl;
  kl.add(static_cast<float>(std::log(1.25)), 0.0f, 0.2, 0.28);  // inside
  kl.add(static_cast<float>(std::log(0.85)), 0.0f, 0.2, 0.28);  // inside
  EXPECT_EQ(kl.clipped, 0);
  kl.add(static_cast<float>(std::log(1.30)), 0.0f, 0.2, 0.28);
  kl.add(static_cast<float>(std::log(0.75)), 0.0f, 0.2, 0.28);
  EXPECT_EQ(kl.clipped, 2);
  EXPECT_EQ(kl.clipped_share(), 0.5);
}

TEST(Kl, OneBitCounts) {
  KlSums kl;
  kl.add(std::nextafterf(-0.5f, 0.0f), -0.5f, 0.2, 0.28);
  kl.add(-0.0f, 0.0f, 0.2, 0.28);
  EXPECT_EQ(kl.different_bits, 2);
}

TEST(Kl, SumsAdd) {
  KlSums a, b, both;
  a.add(-1.0f, -1.5f, 0.2, 0.28), both.add(-1.0f, -1.5f, 0.2, 0.28);
  b.add(-2.0f, -1.9f, 0.2, 0.28), both.add(-2.0f, -1.9f, 0.2, 0.28);
  a.add(b);
  EXPECT_EQ(a.tokens, both.tokens);
  EXPECT_EQ(a.k3(), both.k3());
  EXPECT_EQ(a.largest, both.largest);
  EXPECT_EQ(KlSums{}.k1(), 0.0);
}

}  // namespace
}  // namespace lockstep
