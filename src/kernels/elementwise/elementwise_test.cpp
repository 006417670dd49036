// Elementwise kernels: values, adjoints, bits everywhere, column ranges.
#include "kernels/kernel_test_tools.h"
#include "kernels/launch.h"

namespace lockstep {
namespace {

constexpr std::int64_t kSizes[] = {1, 15, 17, 33, 64};

double silu(double g) { return g / (1 + std::exp(-g)); }

TEST(Elementwise, AddIsOneRoundedAddAndMayBeInPlace) {
  for (std::int64_t n : kSizes) {
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

TEST(Elementwise, SwigluAndItsAdjointMatchTheReference) {
  for (std::int64_t n : kSizes) {
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

TEST(Elementwise, BitsAndHashesAreTheSameEverywhere) {
  for (std::int64_t n : kSizes)
    expect_same_everywhere([&](KernelBench& bench) {
      const std::int64_t T = 35;
      // Column ranges of one wide matrix, as gate and up stand in practice.
      const View wide = bench.floats(random_floats(T * 2 * n, 6, -20, 20), T, 2 * n), dy = bench.floats(random_floats(T * n, 7), T, n);
      const View gate = wide.column_range(0, n), up = wide.column_range(n, n);
      const View y = bench.junk(T, n), sum = bench.junk(T, n), dwide = bench.junk(T, 2 * n);
      bench.launch(&KernelTable::add, Add{sum, gate, up});
      bench.launch(&KernelTable::swiglu_forward, SwigluForward{y, gate, up});
      bench.launch(&KernelTable::swiglu_backward, SwigluBackward{dwide.column_range(0, n), dwide.column_range(n, n), dy, gate, up});
      for (const View& v : {sum, y, dwide}) bench.record(v);
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
