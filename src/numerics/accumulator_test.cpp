// The order-free accumulator: no order, no split and no instruction set changes a bit; accuracy; overflow and NaN; and a plain sum
// of the same data does change, so the data is hard enough.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

#include "base/philox.h"
#include "numerics/accumulator.h"
#include "numerics/isa/scalar.h"
#include "numerics/operation_table.h"

namespace lockstep {
namespace {

struct Lanes {
  double bins[48];
  float total[16];
};
Lanes accumulate(const OperationTable& table, const std::vector<float>& values, int parts) {
  Lanes lanes;
  table.accumulate(values.data(), static_cast<int>(values.size() / 16), parts, lanes.bins, lanes.total);
  return lanes;
}
std::vector<OperationTable> tables() {
  std::vector<OperationTable> all = {scalar_operations(), avx2_operations()};
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
    all.push_back(avx512_operations());
  return all;
}

// Both signs, magnitudes from 2^low to 2^high evenly in the exponent.
std::vector<float> wild(int blocks, int low, int high, std::uint64_t seed) {
  RandomSequence random(seed, RandomStream::fuzz);
  std::vector<float> values(static_cast<std::size_t>(blocks) * 16);
  for (float& v : values) {
    const int exponent = low + static_cast<int>(random.below(static_cast<std::uint32_t>(high - low + 1)));
    v = std::ldexp(static_cast<float>(1 + random.uniform()), exponent) * (random.next() & 1 ? 1.0f : -1.0f);
  }
  return values;
}
// Blocks of 16 in another order.
std::vector<float> shuffled(const std::vector<float>& values, std::uint64_t seed) {
  RandomSequence random(seed, RandomStream::shuffle);
  std::vector<std::size_t> order(values.size() / 16);
  std::iota(order.begin(), order.end(), 0);
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(static_cast<std::uint32_t>(i))]);
  std::vector<float> result;
  for (std::size_t block : order) result.insert(result.end(), &values[block * 16], &values[block * 16] + 16);
  return result;
}
bool same(const Lanes& a, const Lanes& b) { return std::memcmp(&a, &b, sizeof a) == 0; }

TEST(Accumulator, NoBitDependsOnOrderSplitOrInstructionSet) {
  const auto all = tables();
  for (const auto& [low, high] : {std::pair{-120, 40}, {-96, -50}, {-30, 0}, {-149, -90}}) {
    const std::vector<float> values = wild(333, low, high, 1);
    const Lanes want = accumulate(all[0], values, 1);
    for (int i = 0; i < 16; ++i) ASSERT_TRUE(std::isfinite(want.total[i]));
    int different = 0;
    for (std::uint64_t seed = 0; seed < 1000; ++seed) {
      const std::vector<float> other = shuffled(values, seed);
      different += !same(accumulate(all[seed % all.size()], other, 1 + static_cast<int>(seed % 7)), want);
    }
    EXPECT_EQ(different, 0) << "magnitudes 2^" << low << " to 2^" << high;
  }
}

TEST(Accumulator, PlainSumsOfTheSameDataDoChange) {
  const std::vector<float> values = wild(333, -120, 40, 1);
  const auto plain = [&](auto zero, const std::vector<float>& v) {
    std::vector<decltype(zero)> sum(16, zero);
    for (std::size_t i = 0; i < v.size(); ++i) sum[i % 16] += v[i];
    return sum;
  };
  int float_differs = 0, double_differs = 0;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const std::vector<float> other = shuffled(values, seed);
    float_differs += plain(0.0f, other) != plain(0.0f, values);
    double_differs += plain(0.0, other) != plain(0.0, values);
  }
  EXPECT_GT(float_differs, 90);
  EXPECT_GT(double_differs, 90);
}

TEST(Accumulator, TotalIsTheRoundedSum) {
  for (const auto& [low, high] : {std::pair{-60, 38}, {-96, -80}, {-40, -35}, {-10, 3}})
    for (int blocks : {1, 2, 500}) {
      const std::vector<float> values = wild(blocks, low, high, 2);
      const Lanes lanes = accumulate(tables()[0], values, 1);
      for (int lane = 0; lane < 16; ++lane) {
        long double sum = 0, rest = 0;  // compensated
        for (std::size_t i = static_cast<std::size_t>(lane); i < values.size(); i += 16) {
          const long double next = sum + values[i];
          rest += std::fabs(sum) >= std::fabs(static_cast<long double>(values[i])) ? (sum - next) + values[i] : (values[i] - next) + sum;
          sum = next;
        }
        sum += rest;
        int exponent;
        std::frexp(sum, &exponent);
        const long double bound = std::ldexp(0.5000001L, exponent - 24) + blocks * 0x1p-97L;
        EXPECT_LE(std::fabs(lanes.total[lane] - sum), bound) << lanes.total[lane] << " against " << static_cast<double>(sum);
      }
    }
}

TEST(Accumulator, SmallNegativeSumsKeepTheirBits) {
  for (float x : {-1e-8f, -1e-12f, -1e-20f, -0x1.23p-70f, 1e-20f, -3.0f}) {
    const Lanes lanes = accumulate(tables()[0], std::vector<float>(16, x), 1);
    EXPECT_EQ(lanes.total[5], x);
  }
}

TEST(Accumulator, NormalisedBinsHaveOneForm) {
  const Lanes lanes = accumulate(tables()[0], wild(200, -100, 30, 3), 3);
  for (int lane = 0; lane < 16; ++lane) {
    EXPECT_EQ(std::fmod(lanes.bins[lane], 0x1p-4), 0);
    EXPECT_TRUE(lanes.bins[16 + lane] >= 0 && lanes.bins[16 + lane] < 0x1p-4);
    EXPECT_TRUE(lanes.bins[32 + lane] >= 0 && lanes.bins[32 + lane] < 0x1p-50);
  }
}

TEST(Accumulator, NanInfinityAndOverflowGiveNanInAnyOrder) {
  const float nan = std::nanf(""), inf = INFINITY;
  const auto total = [](const std::vector<float>& deposits, const OperationTable& table) {
    std::vector<float> values;
    for (float d : deposits) values.insert(values.end(), 16, d);
    return accumulate(table, values, 1).total[0];
  };
  for (const OperationTable& table : tables()) {
    for (const std::vector<float>& bad :
         std::vector<std::vector<float>>{{nan}, {inf}, {-inf}, {inf, -inf}, {0x1p41f}, {-0x1p41f}, {0x1p60f, -0x1p60f}, {3e38f, -3e38f}})
      for (bool first : {true, false}) {
        std::vector<float> deposits = {1.0f, -2.5f};
        deposits.insert(first ? deposits.begin() : deposits.end(), bad.begin(), bad.end());
        EXPECT_TRUE(std::isnan(total(deposits, table))) << bad[0];
      }
    // The sum, not a deposit: 2^44 is too much, what cancels below it is not.
    EXPECT_TRUE(std::isnan(total(std::vector<float>(16, 0x1p40f), table)));
    EXPECT_EQ(total(std::vector<float>(15, 0x1p40f), table), 15 * 0x1p40f);
    std::vector<float> cancelling(100, 0x1p40f);
    cancelling.insert(cancelling.end(), 99, -0x1p40f);
    EXPECT_EQ(total(cancelling, table), 0x1p40f);
    EXPECT_TRUE(std::isnan(total(std::vector<float>(5000, 0x1p40f), table)));
    EXPECT_EQ(total({0x1.fffffep40f}, table), 0x1.fffffep40f);
  }
}

TEST(Accumulator, TracedHasTheSameValuesAndAnOrderFreeHash) {
  using V = TracedVec<ScalarTiles>;
  const std::vector<float> values = wild(100, -120, 40, 4);
  const auto run = [](const std::vector<float>& v) {
    AccumulatorVec<V> bins = AccumulatorVec<V>::zero();
    for (std::size_t i = 0; i < v.size(); i += 16) bins.deposit(V::map([&](int l) { return traced_constant(v[i + static_cast<std::size_t>(l)]); }));
    bins.normalise();
    return bins.total();
  };
  const V one = run(values), other = run(shuffled(values, 9));
  const Lanes want = accumulate(tables()[0], values, 1);
  auto changed = values;
  changed[3] = std::nextafter(changed[3], 0.0f);
  const V third = run(changed);
  for (int lane = 0; lane < 16; ++lane) {
    EXPECT_EQ(float_bits(one.lane[lane].value), float_bits(want.total[lane]));
    EXPECT_EQ(one.lane[lane].hash, other.lane[lane].hash);
    EXPECT_EQ(third.lane[lane].hash == one.lane[lane].hash, lane != 3);
  }
  // An empty chain leaves no trace.
  AccumulatorVec<V> bins = AccumulatorVec<V>::zero();
  bins.deposit(V::zero());
  EXPECT_EQ(bins.total().lane[0].hash, AccumulatorVec<V>::zero().total().lane[0].hash);
}

}  // namespace
}  // namespace lockstep
