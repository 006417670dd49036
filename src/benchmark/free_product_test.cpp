// The free order computes the same layer, for every tile; the sampler of processor time tells two functions from each other.
#include "kernels/free_order/free_product.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>

#include "benchmark/noise.h"
#include "benchmark/profile_samples.h"
#include "kernels/backend.h"

namespace lockstep {
namespace {

TEST(FreeProduct, IsTheSameLayerInEveryTile) {
  for (const InstructionSet isa : {InstructionSet::avx2, InstructionSet::avx512}) {
    if (!machine_has(isa)) continue;
    for (const std::int64_t rows : {1, 2, 3, 5, 12, 13, 60})
      for (const std::int64_t outputs : {16, 40, 150})
        for (const auto& [accumulators, part] : {std::pair(1, 0), {2, 0}, {4, 0}, {1, 16}, {4, 30}}) {
          const std::int64_t inputs = 67, panels = (outputs + 15) / 16;
          const std::vector<float> x = noise(rows * inputs, 1), w = noise(panels * inputs * 16, 2);
          std::vector<float> y(static_cast<std::size_t>(rows * outputs), 12345.0f);
          ThreadPool pool(2);
          free_product({y.data(), x.data(), w.data(), rows, outputs, inputs, accumulators, part}, isa, pool);
          for (std::int64_t t = 0; t < rows; ++t)
            for (std::int64_t n = 0; n < outputs; ++n) {
              double sum = 0;
              for (std::int64_t k = 0; k < inputs; ++k)
                sum += static_cast<double>(x[static_cast<std::size_t>(t * inputs + k)]) * w[static_cast<std::size_t>((n / 16 * inputs + k) * 16 + n % 16)];
              ASSERT_NEAR(y[static_cast<std::size_t>(t * outputs + n)], sum, 1e-5)
                  << rows << " x " << outputs << ", " << accumulators << " accumulators, parts of " << part << ", row " << t;
            }
        }
  }
}

[[gnu::noinline]] double burn_in_one_place(std::chrono::milliseconds time) {
  double x = 1;
  for (const auto end = std::chrono::steady_clock::now() + time; std::chrono::steady_clock::now() < end;)
    for (int i = 0; i < 10000; ++i) x = x * 1.0000001 + 1e-9;
  return x;
}
[[gnu::noinline]] double burn_elsewhere(std::chrono::milliseconds time) {
  double x = 1;
  for (const auto end = std::chrono::steady_clock::now() + time; std::chrono::steady_clock::now() < end;)
    for (int i = 0; i < 10000; ++i) x = x * 1.0000002 + 1e-9;
  return x;
}

TEST(ProfileSamples, TellAFunctionsShareOfTheTime) {
  ProfileSamples samples;
  samples.begin();
  double sum = 0;
  while (samples.count() < 60) sum += burn_in_one_place(std::chrono::milliseconds(30)) + burn_elsewhere(std::chrono::milliseconds(10));
  samples.end();
  EXPECT_GT(sum, 0);
  const double one = samples.share({"burn_in_one_place"}), other = samples.share({"burn_elsewhere"});
  EXPECT_GT(one, 0.45) << samples.count();
  EXPECT_LT(one, 0.95) << samples.count();
  EXPECT_GT(one, other);
  EXPECT_EQ(samples.share({"no_such_function"}), 0);
}

}  // namespace
}  // namespace lockstep
