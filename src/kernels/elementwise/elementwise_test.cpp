// Elementwise kernels: values, adjoints, the same bits on every backend, column ranges.
#include "kernels/kernel_test_tools.h"
#include "kernels/launch.h"
#include "numerics/elementary.h"
#include "numerics/isa/scalar.h"

namespace lockstep {
namespace {

constexpr std::int64_t kElementwiseSizes[] = {1, 15, 17, 33, 64};

double silu(double g) { return g / (1 + std::exp(-g)); }

TEST(Elementwise, AddIsOneRoundedAddAndMayBeInPlace) {
  for (std::int64_t n : kElementwiseSizes) {
    const std::int64_t T = 19;
    const auto a = random_floats(T * n, 1), b = random_floats(T * n, 2);
    KernelBench bench;
    const View va = bench.floats(a, T, n), vb = bench.floats(b, T, n), y = bench.junk(T, n);
    bench.launch(&KernelTable::add, Add{y, va, vb});
    std::vector<float> want(a.size());
    for (std::size_t i = 0; i < a.size(); ++i) want[i] = a[i] + b[i];
    EXPECT_EQ(bench.read(y), want) << n;
    bench.launch(&KernelTable::add, Add{vb, va, vb});
    EXPECT_EQ(bench.read(vb), want) << n;
  }
}

TEST(Elementwise, ScaleIsOneRoundedProductAndMayBeInPlace) {
  for (std::int64_t n : kElementwiseSizes) {
    const std::int64_t T = 19;
    auto x = random_floats(T * n, 1);
    x[0] = -0.0f;
    KernelBench bench;
    const View wide = bench.junk(T, n + 3), y = wide.column_range(3, n), vx = bench.floats(x, T, n);
    bench.launch(&KernelTable::scale, Scale{y, vx, 1.75f});
    std::vector<float> want(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) want[i] = x[i] * 1.75f;
    for (std::int64_t t = 0; t < T; ++t) EXPECT_EQ(bench.read(y.row_range(t, 1)), std::vector<float>(want.begin() + t * n, want.begin() + (t + 1) * n)) << n;
    bench.launch(&KernelTable::scale, Scale{vx, vx, 1.75f});
    expect_same_words(words_of(bench.read(vx)), words_of(want), "in place");
  }
}

TEST(Elementwise, SwigluAndItsAdjointMatchTheReference) {
  for (std::int64_t n : kElementwiseSizes) {
    const std::int64_t T = 3;
    const auto g = random_floats(T * n, 3, -6, 6), u = random_floats(T * n, 4, -2, 2), dy = random_floats(T * n, 5);
    KernelBench bench;
    const View y = bench.junk(T, n), dgate = bench.junk(T, n), dup = bench.junk(T, n);
    const View vg = bench.floats(g, T, n), vu = bench.floats(u, T, n), vdy = bench.floats(dy, T, n);
    bench.launch(&KernelTable::swiglu_forward, SwigluForward{y, vg, vu});
    bench.launch(&KernelTable::swiglu_backward, SwigluBackward{dgate, dup, vdy, vg, vu});
    std::vector<double> want(g.size());
    for (std::size_t i = 0; i < g.size(); ++i) want[i] = silu(g[i]) * u[i];
    expect_close(bench.read(y), want, 1e-6, "y");
    const auto loss = [&](const std::vector<double>& gate, const std::vector<double>& up) {
      double sum = 0;
      for (std::size_t i = 0; i < gate.size(); ++i) sum += dy[i] * silu(gate[i]) * up[i];
      return sum;
    };
    expect_close(bench.read(dgate), finite_difference([&](const auto& x) { return loss(x, widened(u)); }, widened(g)), 1e-5, "dgate");
    expect_close(bench.read(dup), finite_difference([&](const auto& x) { return loss(widened(g), x); }, widened(u)), 1e-5, "dup");
  }
}

// gpt-oss' SwiGLU: values beyond the limit have no gradient, and those at the limit are not beyond it.
TEST(Elementwise, ClampedSwigluAndItsAdjointMatchTheReference) {
  const double gain = 1.702, limit = 2.5;
  for (std::int64_t n : kElementwiseSizes) {
    const std::int64_t T = 5;
    auto g = random_floats(T * n, 10, -6, 6), u = random_floats(T * n, 11, -5, 5);
    const auto dy = random_floats(T * n, 12);
    KernelBench bench;
    const View y = bench.junk(T, n), dgate = bench.junk(T, n), dup = bench.junk(T, n);
    const View vg = bench.floats(g, T, n), vu = bench.floats(u, T, n), vdy = bench.floats(dy, T, n);
    bench.launch(&KernelTable::swiglu_forward, SwigluForward{y, vg, vu, 1.702f, 2.5f});
    bench.launch(&KernelTable::swiglu_backward, SwigluBackward{dgate, dup, vdy, vg, vu, 1.702f, 2.5f});
    const auto value = [&](double gate, double up) {
      gate = std::min(gate, limit), up = std::clamp(up, -limit, limit);
      return (up + 1) * gate / (1 + std::exp(-gain * gate));
    };
    std::vector<double> want(g.size());
    for (std::size_t i = 0; i < g.size(); ++i) want[i] = value(g[i], u[i]);
    expect_close(bench.read(y), want, 1e-6, "y");
    const auto loss = [&](const std::vector<double>& gate, const std::vector<double>& up) {
      double sum = 0;
      for (std::size_t i = 0; i < gate.size(); ++i) sum += dy[i] * value(gate[i], up[i]);
      return sum;
    };
    expect_close(bench.read(dgate), finite_difference([&](const auto& x) { return loss(x, widened(u)); }, widened(g)), 1e-5, "dgate");
    expect_close(bench.read(dup), finite_difference([&](const auto& x) { return loss(widened(g), x); }, widened(u)), 1e-5, "dup");
  }
  KernelBench bench;
  const View at = bench.floats({2.5f, -2.5f, 3, -3, std::nanf("")}, 1, 5), one = bench.floats({1, 1, 1, 1, 1}, 1, 5), dgate = bench.junk(1, 5),
             dup = bench.junk(1, 5);
  bench.launch(&KernelTable::swiglu_backward, SwigluBackward{dgate, dup, one, at, at, 1.702f, 2.5f});
  const std::vector<float> of_gate = bench.read(dgate), of_up = bench.read(dup);
  EXPECT_NE(of_gate[0], 0.0f);
  EXPECT_NE(of_gate[3], 0.0f);  // a gate is clamped above alone
  EXPECT_EQ(of_gate[2], 0.0f);
  EXPECT_NE(of_up[0], 0.0f);
  EXPECT_NE(of_up[1], 0.0f);
  EXPECT_EQ(of_up[2], 0.0f);
  EXPECT_EQ(of_up[3], 0.0f);
  EXPECT_TRUE(std::isnan(of_gate[4]) && std::isnan(of_up[4]));
}

TEST(Elementwise, ClampedSwigluFollowsTheWrittenOrder) {
  const std::int64_t T = 7, n = 33;
  const auto g = random_floats(T * n, 13, -4, 4), u = random_floats(T * n, 14, -4, 4), dy = random_floats(T * n, 15);
  const float gain = 1.3f, limit = 1.5f;
  KernelBench bench;
  const View y = bench.junk(T, n), dgate = bench.junk(T, n), dup = bench.junk(T, n);
  const View vg = bench.floats(g, T, n), vu = bench.floats(u, T, n);
  bench.launch(&KernelTable::swiglu_forward, SwigluForward{y, vg, vu, gain, limit});
  bench.launch(&KernelTable::swiglu_backward, SwigluBackward{dgate, dup, bench.floats(dy, T, n), vg, vu, gain, limit});
  std::vector<float> want_y, want_dgate, want_dup;
  for (std::size_t i = 0; i < g.size(); ++i) {
    const float gate = std::min(g[i], limit), up = std::clamp(u[i], -limit, limit) + 1.0f, gained = gain * gate;
    const float e = exp_element<ScalarVec>(-std::abs(gained)), s = (gained < 0 ? e : 1.0f) / (1.0f + e);
    want_y.push_back((gate * s) * up);
    want_dup.push_back(std::abs(u[i]) > limit ? 0.0f : dy[i] * (gate * s));
    want_dgate.push_back(g[i] > limit ? 0.0f : (dy[i] * up) * (s * std::fma(gained, 1.0f - s, 1.0f)));
  }
  expect_same_words(words_of(bench.read(y)), words_of(want_y), "y");
  expect_same_words(words_of(bench.read(dup)), words_of(want_dup), "dup");
  expect_same_words(words_of(bench.read(dgate)), words_of(want_dgate), "dgate");
}

TEST(Elementwise, BitsAndHashesAreTheSameEverywhere) {
  for (std::int64_t n : kElementwiseSizes)
    expect_same_everywhere([&](KernelBench& bench) {
      const std::int64_t T = 35;
      // Column ranges of one wide matrix, as gate and up stand in practice.
      const View wide = bench.floats(random_floats(T * 2 * n, 6, -20, 20), T, 2 * n), dy = bench.floats(random_floats(T * n, 7), T, n);
      const View gate = wide.column_range(0, n), up = wide.column_range(n, n);
      const View y = bench.junk(T, n), sum = bench.junk(T, n), dwide = bench.junk(T, 2 * n);
      bench.launch(&KernelTable::add, Add{sum, gate, up});
      bench.launch(&KernelTable::scale, Scale{sum, sum, 0.3f});
      bench.launch(&KernelTable::swiglu_forward, SwigluForward{y, gate, up});
      bench.launch(&KernelTable::swiglu_backward, SwigluBackward{dwide.column_range(0, n), dwide.column_range(n, n), dy, gate, up});
      for (const View& v : {sum, y, dwide}) bench.record(v);
      bench.launch(&KernelTable::swiglu_forward, SwigluForward{y, gate, up, 1.702f, 7.0f});
      bench.launch(&KernelTable::swiglu_backward, SwigluBackward{dwide.column_range(0, n), dwide.column_range(n, n), dy, gate, up, 1.702f, 7.0f});
      for (const View& v : {y, dwide}) bench.record(v);
    });
}

TEST(Elementwise, ARowHasTheSameBitsAlone) {
  const std::int64_t T = 21, n = 33;
  KernelBench bench;
  const View g = bench.floats(random_floats(T * n, 8), T, n), u = bench.floats(random_floats(T * n, 9), T, n), y = bench.junk(T, n);
  bench.launch(&KernelTable::swiglu_forward, SwigluForward{y, g, u});
  for (std::int64_t t : {0, 7, 20}) {
    const View alone = bench.junk(1, n);
    bench.launch(&KernelTable::swiglu_forward, SwigluForward{alone, g.row_range(t, 1), u.row_range(t, 1)});
    expect_same_words(words_of(bench.read(alone)), words_of(bench.read(y.row_range(t, 1))), "row " + std::to_string(t));
  }
}

}  // namespace
}  // namespace lockstep
