// The router: choice, ties, NaN, weights, adjoint, loads; bits everywhere.
#include <numeric>

#include "kernels/kernel_test_tools.h"
#include "kernels/launch.h"

namespace lockstep {
namespace {

struct Shape {
  std::int64_t experts, k;
};
constexpr Shape kShapes[] = {{1, 1}, {8, 2}, {15, 3}, {17, 4}, {33, 8}};

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// Weights of the chosen experts of one row.
std::vector<double> reference_weights(const double* logits, const std::int32_t* chosen, std::int64_t k, bool normalise, double scaling) {
  std::vector<double> w;
  for (std::int64_t j = 0; j < k; ++j) w.push_back(sigmoid(logits[chosen[j]]));
  const double sum = std::accumulate(w.begin(), w.end(), 1e-20);
  for (double& v : w) v = scaling * (normalise ? v / sum : v);
  return w;
}

TEST(Router, ChoosesTheLargestAndWeighsThem) {
  for (const Shape& s : kShapes)
    for (bool normalise : {true, false}) {
      const std::int64_t T = 50;
      const auto logits = random_floats(T * s.experts, 1, -3, 3), bias = random_floats(s.experts, 2, -0.3, 0.3);
      KernelBench bench;
      const View expert = bench.zeros(T, s.k, DType::i32), weight = bench.junk(T, s.k), flags = bench.zeros(T, 1, DType::i32);
      bench.launch(&KernelTable::router_forward, RouterForward{expert, weight, flags, bench.floats(logits, T, s.experts),
                                                               bench.floats(bias, 1, s.experts), normalise, 2.5f});
      std::vector<std::int32_t> want;
      std::vector<double> weights;
      for (std::int64_t t = 0; t < T; ++t) {
        std::vector<std::int32_t> order(static_cast<std::size_t>(s.experts));
        std::iota(order.begin(), order.end(), 0);
        const float* row = &logits[t * s.experts];
        std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return sigmoid(row[a]) + bias[a] > sigmoid(row[b]) + bias[b]; });
        std::sort(order.begin(), order.begin() + s.k);
        want.insert(want.end(), order.begin(), order.begin() + s.k);
        const std::vector<double> wide(row, row + s.experts);
        for (double w : reference_weights(wide.data(), order.data(), s.k, normalise, 2.5)) weights.push_back(w);
      }
      EXPECT_EQ(bench.read_ints(expert), want);
      expect_close(bench.read(weight), weights, 1e-6, "weights");
      EXPECT_EQ(bench.read_ints(flags), std::vector<std::int32_t>(T, 0));
    }
}

TEST(Router, TiesGoToTheLowerExpertAndNanIsLowestAndFlagged) {
  const float nan = std::nanf(""), inf = INFINITY;
  const std::vector<float> logits = {0, 0, 0, 0, 0,             // all equal
                                     0, 1, 0, 1, 0,             // two above, the rest equal
                                     nan, 0, nan, -9, -9,       // NaN loses against anything
                                     nan, nan, nan, nan, nan,   // nothing else: ascending
                                     -inf, nan, -inf, nan, -inf};
  KernelBench bench;
  const View expert = bench.zeros(5, 3, DType::i32), weight = bench.junk(5, 3), flags = bench.ints({8, 8, 8, 8, 8}, 5);
  bench.launch(&KernelTable::router_forward,
               RouterForward{expert, weight, flags, bench.floats(logits, 5, 5), bench.floats({-0.5f, -0.5f, -0.5f, -0.5f, -0.5f}, 1, 5), true, 1.0f});
  EXPECT_EQ(bench.read_ints(expert), (std::vector<std::int32_t>{0, 1, 2, 0, 1, 3, 1, 3, 4, 0, 1, 2, 0, 2, 4}));
  EXPECT_EQ(bench.read_ints(flags), (std::vector<std::int32_t>{8, 8, 10, 10, 10}));
}

TEST(Router, AdjointMatchesFiniteDifferences) {
  for (const Shape& s : kShapes)
    for (bool normalise : {true, false}) {
      const std::int64_t T = 3;
      const auto logits = random_floats(T * s.experts, 3, -3, 3), dweight = random_floats(T * s.k, 4);
      KernelBench bench;
      const View expert = bench.zeros(T, s.k, DType::i32), dlogits = bench.junk(T, s.experts), vlogits = bench.floats(logits, T, s.experts);
      bench.launch(&KernelTable::router_forward, RouterForward{expert, bench.junk(T, s.k), {}, vlogits, bench.zeros(1, s.experts), normalise, 2.5f});
      bench.launch(&KernelTable::router_backward,
                   RouterBackward{dlogits, bench.floats(dweight, T, s.k), expert, vlogits, normalise, 2.5f});
      const auto chosen = bench.read_ints(expert);
      const auto loss = [&](const std::vector<double>& x) {
        double sum = 0;
        for (std::int64_t t = 0; t < T; ++t) {
          const auto w = reference_weights(&x[t * s.experts], &chosen[t * s.k], s.k, normalise, 2.5);
          for (std::int64_t j = 0; j < s.k; ++j) sum += w[j] * dweight[t * s.k + j];
        }
        return sum;
      };
      const auto want = finite_difference(loss, widened(logits));
      if (s.k > 1 || !normalise) expect_close(bench.read(dlogits), want, 1e-5, "dlogits");
      else for (float d : bench.read(dlogits)) EXPECT_NEAR(d, 0.0f, 1e-6f);  // one expert has weight 1 whatever its score
    }
}

// Given experts: the model's own give its bits, others the formula over those; a row without any is routed.
TEST(Router, GivenExpertsTakeThePlaceOfTheLargest) {
  for (const Shape& s : kShapes)
    for (bool normalise : {true, false}) {
      const std::int64_t T = 40;
      const auto logits = random_floats(T * s.experts, 11, -3, 3);
      KernelBench bench;
      const View vlogits = bench.floats(logits, T, s.experts), bias = bench.floats(random_floats(s.experts, 12, -0.3, 0.3), 1, s.experts);
      const auto routed = [&](const View& forced) {
        const View expert = bench.zeros(T, s.k, DType::i32), weight = bench.junk(T, s.k), flags = bench.zeros(T, 1, DType::i32);
        bench.launch(&KernelTable::router_forward, RouterForward{expert, weight, flags, vlogits, bias, normalise, 2.5f, forced});
        return std::pair(bench.read_ints(expert), bench.read(weight));
      };
      const auto [own, own_weights] = routed({});
      const auto [again, again_weights] = routed(bench.ints(own, T, s.k));
      EXPECT_EQ(again, own);
      expect_same_words(words_of(again_weights), words_of(own_weights), "weights of the model's own experts");
      // The last k experts for even rows, in a wider matrix as all layers have one; odd rows are routed.
      std::vector<std::int32_t> wide(static_cast<std::size_t>(T * (s.k + 3)), -1), want = own;
      for (std::int64_t t = 0; t < T; t += 2)
        for (std::int64_t j = 0; j < s.k; ++j)
          wide[static_cast<std::size_t>(t * (s.k + 3) + 2 + j)] = want[static_cast<std::size_t>(t * s.k + j)] = static_cast<std::int32_t>(s.experts - s.k + j);
      const auto [given, weights] = routed(bench.ints(wide, T, s.k + 3).column_range(2, s.k));
      EXPECT_EQ(given, want);
      std::vector<double> by_formula;
      for (std::int64_t t = 0; t < T; ++t) {
        const std::vector<double> row(logits.begin() + t * s.experts, logits.begin() + (t + 1) * s.experts);
        for (double w : reference_weights(row.data(), &want[static_cast<std::size_t>(t * s.k)], s.k, normalise, 2.5)) by_formula.push_back(w);
      }
      expect_close(weights, by_formula, 1e-6, "weights");
    }
}

TEST(Router, LoadCountsAreAdded) {
  KernelBench bench;
  const View load = bench.ints({100, 0, 0, 0}, 1, 4), expert = bench.ints({0, 1, 1, 3, 0, 3}, 3, 2);
  for (int i = 0; i < 2; ++i) bench.launch(&KernelTable::router_load, RouterLoad{load, expert});
  EXPECT_EQ(bench.read_ints(load), (std::vector<std::int32_t>{104, 4, 0, 4}));
}

TEST(Router, BitsAndHashesAreTheSameEverywhere) {
  for (const Shape& s : kShapes)
    for (bool normalise : {true, false})
      expect_same_everywhere([&](KernelBench& bench) {
        const std::int64_t T = 35;
        auto logits = random_floats(T * s.experts, 5, -8, 8);
        logits[2] = logits[1 % logits.size()], logits[0] = -0.0f;
        const View vlogits = bench.floats(logits, T, s.experts), bias = bench.floats(random_floats(s.experts, 6), 1, s.experts);
        const View expert = bench.zeros(T, s.k, DType::i32), weight = bench.junk(T, s.k), flags = bench.zeros(T, 1, DType::i32);
        const View dlogits = bench.junk(T, s.experts), load = bench.zeros(1, s.experts, DType::i32);
        bench.launch(&KernelTable::router_forward, RouterForward{expert, weight, flags, vlogits, bias, normalise, 1.5f});
        bench.launch(&KernelTable::router_load, RouterLoad{load, expert});
        bench.launch(&KernelTable::router_backward,
                     RouterBackward{dlogits, bench.floats(random_floats(T * s.k, 7), T, s.k), expert, vlogits, normalise, 1.5f});
        for (const View& v : {expert, weight, flags, dlogits, load}) bench.record(v);
        std::vector<std::int32_t> given(static_cast<std::size_t>(T * s.k), -1);
        for (std::int64_t i = 0; i < 9 * s.k; ++i) given[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(i % s.k);
        bench.launch(&KernelTable::router_forward, RouterForward{expert, weight, flags, vlogits, bias, normalise, 1.5f, bench.ints(given, T, s.k)});
        for (const View& v : {expert, weight, flags}) bench.record(v);
      });
}

TEST(Router, TiesAndNanAreTheSameEverywhere) {
  const float nan = std::nanf(""), inf = INFINITY;
  const std::vector<float> logits = {0, -0.0f, 0, 0, 0, 0, 1, 0, 1, 0, nan, 0, nan, -9, -9, nan, nan, nan, nan, nan, -inf, nan, inf, nan, -inf};
  for (const std::int64_t k : {1, 3, 5})
    expect_same_everywhere([&](KernelBench& bench) {
      const View expert = bench.zeros(5, k, DType::i32), weight = bench.junk(5, k), flags = bench.ints({8, 8, 8, 8, 8}, 5), dlogits = bench.junk(5, 5);
      const View vlogits = bench.floats(logits, 5, 5);
      bench.launch(&KernelTable::router_forward, RouterForward{expert, weight, flags, vlogits, bench.floats({-0.5f, -0.5f, -0.5f, -0.5f, -0.5f}, 1, 5), true, 1.0f});
      bench.launch(&KernelTable::router_backward, RouterBackward{dlogits, weight, expert, vlogits, true, 1.0f});
      for (const View& v : {expert, weight, flags, dlogits}) bench.record(v);
    });
}

TEST(Router, ARowHasTheSameBitsAlone) {
  const std::int64_t T = 40, E = 33, k = 4;
  KernelBench bench;
  const View logits = bench.floats(random_floats(T * E, 8, -3, 3), T, E), bias = bench.floats(random_floats(E, 9), 1, E);
  const View expert = bench.zeros(T, k, DType::i32), weight = bench.junk(T, k);
  bench.launch(&KernelTable::router_forward, RouterForward{expert, weight, {}, logits, bias, true, 2.5f});
  for (std::int64_t t : {0, 13, 39}) {
    const View one = bench.zeros(1, k, DType::i32), alone = bench.junk(1, k);
    bench.launch(&KernelTable::router_forward, RouterForward{one, alone, {}, logits.row_range(t, 1), bias, true, 2.5f});
    EXPECT_EQ(bench.read_ints(one), bench.read_ints(expert.row_range(t, 1)));
    expect_same_words(words_of(bench.read(alone)), words_of(bench.read(weight.row_range(t, 1))), "weights");
  }
}

}  // namespace
}  // namespace lockstep
