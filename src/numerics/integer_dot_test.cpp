// The exact sums of integers on every instruction set, with VNNI and without, against the scalar definition: random ones, and all at their
// limits, where 16-bit sums of products would saturate.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "base/philox.h"
#include "numerics/integer_dot_tools.h"
#include "numerics/isa/integer_dot_scalar.h"

namespace lockstep {
namespace {

struct Form {
  const char* name;
  IntegerDotTest run;
};
std::vector<Form> forms() {
  std::vector<Form> all = {{"avx2", avx2_integer_dot()}};
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
    all.push_back({"avx512", avx512_integer_dot()});
    if (__builtin_cpu_supports("avx512vnni")) all.push_back({"avx512 with VNNI", avx512_vnni_integer_dot()});
  }
  return all;
}

TEST(IntegerDot, EveryInstructionSetHasTheSumsOfTheDefinition) {
  RandomSequence random(3, RandomStream::fuzz);
  for (const Form& form : forms())
    for (int bits : {8, 4})
      for (int round = 0; round < 400; ++round) {
        const int limit = bits == 8 ? 127 : 7, zero = bits == 8 ? 128 : 8;
        // The first rounds at the limits: rows and weights of one sign, of alternating ones, of random ones.
        const auto integer = [&](int most, int kind, int i) {
          if (kind == 0) return most;
          if (kind == 1) return -most;
          if (kind == 2) return i % 2 ? most : -most;
          if (kind == 3) return random.below(2) ? most : -most;
          return static_cast<int>(random.below(static_cast<std::uint32_t>(2 * most + 1))) - most;
        };
        const int x_kind = round < 16 ? round % 4 : 4, w_kind = round < 16 ? round / 4 : 4;
        std::int8_t q[32];
        std::uint8_t weights[512];
        float numbers[32];
        std::int64_t want[16] = {};
        for (int i = 0; i < 32; ++i) {
          q[i] = static_cast<std::int8_t>(integer(127, x_kind, i));
          numbers[i] = static_cast<float>(random.uniform() * 254 - 127);
          if (round % 3 == 0) numbers[i] = std::nearbyint(numbers[i] * 2) / 2;  // ties
        }
        std::memset(weights, 0, sizeof weights);
        for (int lane = 0; lane < 16; ++lane)
          for (int k = 0; k < 32; ++k) {
            const int w = integer(limit, w_kind, k);
            want[lane] += w * q[k];
            if (bits == 8) weights[k / 4 * 64 + lane * 4 + k % 4] = static_cast<std::uint8_t>(w + zero);
            else weights[k / 8 * 64 + lane * 4 + k % 4] = static_cast<std::uint8_t>(weights[k / 8 * 64 + lane * 4 + k % 4] | (w + zero) << (k % 8 / 4 * 4));
          }
        IntegerDotResult expected, got;
        integer_dot_test<ScalarIntegerDot, ScalarVec>(bits, weights, q, numbers, expected);
        form.run(bits, weights, q, numbers, got);
        float largest = 0;
        for (int i = 0; i < 16; ++i) {
          ASSERT_EQ(expected.sums[i], static_cast<float>(want[i])) << "scalar, " << bits << " bits, round " << round;
          ASSERT_EQ(got.sums[i], expected.sums[i]) << form.name << ", " << bits << " bits, round " << round << ", output " << i;
        }
        std::int32_t sum = 0;
        for (int i = 0; i < 32; ++i) {
          largest = std::max(largest, std::fabs(numbers[i]));
          ASSERT_EQ(got.rounded[i], static_cast<int>(std::nearbyint(numbers[i]))) << form.name << " " << numbers[i];
          sum += got.rounded[i];
        }
        ASSERT_EQ(expected.rounded_sum, sum);
        ASSERT_EQ(got.rounded_sum, sum) << form.name;
        ASSERT_EQ(got.largest, largest) << form.name;
      }
}

TEST(IntegerDot, InfinityAndNanAreTheLargest) {
  for (const Form& form : forms())
    for (float bad : {INFINITY, -INFINITY, std::nanf(""), -std::nanf("")})
      for (int at : {0, 15, 16, 31}) {
        float numbers[32] = {3.0e38f};
        numbers[at] = bad;
        const std::uint8_t weights[512] = {};
        const std::int8_t q[32] = {};
        IntegerDotResult got;
        form.run(8, weights, q, numbers, got);
        EXPECT_FALSE(std::isfinite(got.largest)) << form.name << " " << bad << " at " << at;
      }
}

}  // namespace
}  // namespace lockstep
