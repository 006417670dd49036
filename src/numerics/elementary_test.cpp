// exp, log, sigmoid, rsqrt against long double in units of the last place; special values. That their bits are equal on every
// instruction set is part of isa_test.cpp and repeated here on the range that matters.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <string>

#include "base/comparison_test_tools.h"
#include "base/philox.h"
#include "numerics/elementary.h"
#include "numerics/isa/scalar.h"
#include "numerics/operation_table.h"

namespace lockstep {
namespace {

const VectorOperation& operation(const OperationTable& table, const std::string& name) {
  return *std::find_if(table.operations.begin(), table.operations.end(), [&](const VectorOperation& o) { return o.name == name; });
}

// |got - want| in units of the last place of a float near want.
double ulps(float got, long double want) {
  int exponent;
  std::frexp(want, &exponent);
  const long double unit = std::ldexp(1.0L, std::max(exponent - 24, -149));
  return static_cast<double>(std::fabs(static_cast<long double>(got) - want) / unit);
}

// The largest error over 2^20 values that `make` draws; all bits are also compared between the instruction sets.
double worst_ulps(const std::string& name, const std::function<float(RandomSequence&)>& make, const std::function<long double(long double)>& exact) {
  const OperationTable scalar = scalar_operations(), avx2 = avx2_operations();
  const bool wide =
      __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  std::vector<const OperationTable*> others = {&avx2};
  const OperationTable avx512 = wide ? avx512_operations() : OperationTable{};
  if (wide) others.push_back(&avx512);
  RandomSequence random(7, RandomStream::fuzz);
  double worst = 0;
  std::int64_t different = 0;
  float in[64] = {}, out[16], other[16];
  for (int block = 0; block < (1 << 16); ++block) {
    for (int l = 0; l < 16; ++l) in[l] = make(random);
    operation(scalar, name).apply(in, reinterpret_cast<std::uint32_t*>(out));
    for (const OperationTable* table : others) {
      operation(*table, name).apply(in, reinterpret_cast<std::uint32_t*>(other));
      different += std::memcmp(out, other, sizeof out) != 0;
    }
    for (int l = 0; l < 16; ++l) worst = worse_of(worst, ulps(out[l], exact(in[l])));
  }
  EXPECT_EQ(different, 0) << name;
  return worst;
}
float uniform(RandomSequence& random, double low, double high) { return static_cast<float>(low + (high - low) * random.uniform()); }
// Any positive normal float.
float positive(RandomSequence& random) { return bits_float((random.next() & 0x007fffffu) | ((1 + random.below(254)) << 23)); }

TEST(Elementary, ExpIsWithinOneUlp) {
  EXPECT_LE(worst_ulps(
                "exp", [](auto& r) { return uniform(r, -87.2, 88.0); }, [](long double x) { return std::exp(x); }),
            1.0);
  EXPECT_LE(worst_ulps(
                "exp", [](auto& r) { return uniform(r, -1.0, 1.0); }, [](long double x) { return std::exp(x); }),
            1.0);
}
TEST(Elementary, LogIsWithinOneUlp) {
  EXPECT_LE(worst_ulps(
                "log", [](auto& r) { return positive(r); }, [](long double x) { return std::log(x); }),
            1.0);
  EXPECT_LE(worst_ulps(
                "log", [](auto& r) { return uniform(r, 0.5, 2.0); }, [](long double x) { return std::log(x); }),
            1.0);
}
TEST(Elementary, SigmoidIsWithinTwoUlps) {
  const auto exact = [](long double x) { return 1 / (1 + std::exp(-x)); };
  EXPECT_LE(worst_ulps(
                "sigmoid", [](auto& r) { return uniform(r, -87.0, 87.0); }, exact),
            2.5);
  EXPECT_LE(worst_ulps(
                "sigmoid", [](auto& r) { return uniform(r, -2.0, 2.0); }, exact),
            2.5);
}
TEST(Elementary, RsqrtIsWithinTwoUlps) {
  EXPECT_LE(worst_ulps(
                "rsqrt", [](auto& r) { return positive(r); }, [](long double x) { return 1 / std::sqrt(x); }),
            1.5);
}

TEST(Elementary, SpecialValues) {
  const float inf = INFINITY, nan = std::nanf("");
  const auto e = [](float x) { return exp_element<ScalarVec>(x); };
  const auto l = [](float x) { return log_element<ScalarVec>(x); };
  const auto s = [](float x) { return sigmoid_element<ScalarVec>(x); };
  EXPECT_EQ(e(0.0f), 1.0f);
  EXPECT_EQ(e(-0.0f), 1.0f);
  EXPECT_EQ(e(-inf), 0.0f);
  EXPECT_EQ(e(-87.31f), 0.0f);
  EXPECT_GT(e(-87.3f), 0.0f);
  EXPECT_EQ(e(inf), e(88.0f));
  EXPECT_TRUE(std::isfinite(e(88.0f)));
  EXPECT_TRUE(std::isnan(e(nan)));
  EXPECT_EQ(l(1.0f), 0.0f);
  EXPECT_EQ(l(0.0f), -inf);
  EXPECT_EQ(l(-1.0f), -inf);
  EXPECT_EQ(s(0.0f), 0.5f);
  EXPECT_EQ(s(inf), 1.0f);
  EXPECT_EQ(s(-inf), 0.0f);
  EXPECT_TRUE(std::isnan(s(nan)));
  // Probabilities never leave [0, 1].
  for (float x = -90; x < 90; x += 0.01f) ASSERT_TRUE(s(x) >= 0 && s(x) <= 1) << x;
}

}  // namespace
}  // namespace lockstep
