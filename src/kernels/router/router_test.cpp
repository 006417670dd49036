// The router: choice, ties, NaN, weights, adjoint, loads; the same bits on every backend.
#include <numeric>

#include "kernels/kernel_test_tools.h"
#include "kernels/launch.h"
#include "numerics/elementary.h"
#include "numerics/isa/scalar.h"

namespace lockstep {
namespace {

struct RouterShape {
  std::int64_t experts, k;
};
constexpr RouterShape kRouterShapes[] = {{1, 1}, {8, 2}, {15, 3}, {17, 4}, {33, 8}};

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
  for (const RouterShape& s : kRouterShapes)
    for (bool normalise : {true, false}) {
      const std::int64_t T = 50;
      const auto logits = random_floats(T * s.experts, 1, -3, 3), bias = random_floats(s.experts, 2, -0.3, 0.3);
      KernelBench bench;
      const View expert = bench.zeros(T, s.k, DType::i32), weight = bench.junk(T, s.k), flags = bench.zeros(T, 1, DType::i32);
      bench.launch(&KernelTable::router_forward,
                   RouterForward{expert, weight, flags, bench.floats(logits, T, s.experts), bench.floats(bias, 1, s.experts), normalise, 2.5f});
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
  const std::vector<float> logits = {0,    0,   0,    0,   0,    // all equal
                                     0,    1,   0,    1,   0,    // two above, the rest equal
                                     nan,  0,   nan,  -9,  -9,   // NaN loses against anything
                                     nan,  nan, nan,  nan, nan,  // nothing else: ascending
                                     -inf, nan, -inf, nan, -inf};
  KernelBench bench;
  const View expert = bench.zeros(5, 3, DType::i32), weight = bench.junk(5, 3), flags = bench.ints({8, 8, 8, 8, 8}, 5);
  bench.launch(&KernelTable::router_forward,
               RouterForward{expert, weight, flags, bench.floats(logits, 5, 5), bench.floats({-0.5f, -0.5f, -0.5f, -0.5f, -0.5f}, 1, 5), true, 1.0f});
  EXPECT_EQ(bench.read_ints(expert), (std::vector<std::int32_t>{0, 1, 2, 0, 1, 3, 1, 3, 4, 0, 1, 2, 0, 2, 4}));
  EXPECT_EQ(bench.read_ints(flags), (std::vector<std::int32_t>{8, 8, 10, 10, 10}));
}

TEST(Router, AdjointMatchesFiniteDifferences) {
  for (const RouterShape& s : kRouterShapes)
    for (bool normalise : {true, false}) {
      const std::int64_t T = 3;
      const auto logits = random_floats(T * s.experts, 3, -3, 3), dweight = random_floats(T * s.k, 4);
      KernelBench bench;
      const View expert = bench.zeros(T, s.k, DType::i32), dlogits = bench.junk(T, s.experts), vlogits = bench.floats(logits, T, s.experts);
      bench.launch(&KernelTable::router_forward, RouterForward{expert, bench.junk(T, s.k), {}, vlogits, bench.zeros(1, s.experts), normalise, 2.5f});
      bench.launch(&KernelTable::router_backward, RouterBackward{dlogits, bench.floats(dweight, T, s.k), expert, vlogits, normalise, 2.5f});
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
      else
        for (float d : bench.read(dlogits)) EXPECT_NEAR(d, 0.0f, 1e-6f);  // one expert has weight 1 whatever its score
    }
}

// Given experts: the model's own give its bits, others the formula over those; a row without any is routed.
TEST(Router, GivenExpertsTakeThePlaceOfTheLargest) {
  for (const RouterShape& s : kRouterShapes)
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

// A softmax over all experts, or over the chosen ones where their weights are renormalised.
std::vector<double> softmax_weights(const double* logits, const std::int32_t* chosen, std::int64_t experts, std::int64_t k, bool normalise, double scaling) {
  double sum = 0;
  if (normalise)
    for (std::int64_t j = 0; j < k; ++j) sum += std::exp(logits[chosen[j]]);
  else
    for (std::int64_t e = 0; e < experts; ++e) sum += std::exp(logits[e]);
  std::vector<double> w;
  for (std::int64_t j = 0; j < k; ++j) w.push_back(scaling * std::exp(logits[chosen[j]]) / sum);
  return w;
}

TEST(Router, SoftmaxWeighsTheLargestLogits) {
  for (const RouterShape& s : kRouterShapes)
    for (bool normalise : {true, false}) {
      const std::int64_t T = 30;
      const auto logits = random_floats(T * s.experts, 13, -6, 6), dweight = random_floats(T * s.k, 14);
      KernelBench bench;
      const View expert = bench.zeros(T, s.k, DType::i32), weight = bench.junk(T, s.k), vlogits = bench.floats(logits, T, s.experts);
      const View dlogits = bench.junk(T, s.experts);
      bench.launch(&KernelTable::router_forward, RouterForward{expert, weight, {}, vlogits, {}, normalise, 1.5f, {}, true});
      bench.launch(&KernelTable::router_backward, RouterBackward{dlogits, bench.floats(dweight, T, s.k), expert, vlogits, normalise, 1.5f, true});
      const auto chosen = bench.read_ints(expert);
      std::vector<std::int32_t> want;
      std::vector<double> weights;
      const std::vector<double> wide = widened(logits);
      for (std::int64_t t = 0; t < T; ++t) {
        const double* row = &wide[static_cast<std::size_t>(t * s.experts)];
        std::vector<std::int32_t> order(static_cast<std::size_t>(s.experts));
        std::iota(order.begin(), order.end(), 0);
        std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return row[a] > row[b]; });
        std::sort(order.begin(), order.begin() + s.k);
        want.insert(want.end(), order.begin(), order.begin() + s.k);
        for (double w : softmax_weights(row, order.data(), s.experts, s.k, normalise, 1.5)) weights.push_back(w);
      }
      EXPECT_EQ(chosen, want);
      expect_close(bench.read(weight), weights, 1e-6, "weights");
      const auto loss = [&](const std::vector<double>& x) {
        double sum = 0;
        for (std::int64_t t = 0; t < T; ++t) {
          const auto w =
              softmax_weights(&x[static_cast<std::size_t>(t * s.experts)], &chosen[static_cast<std::size_t>(t * s.k)], s.experts, s.k, normalise, 1.5);
          for (std::int64_t j = 0; j < s.k; ++j) sum += w[static_cast<std::size_t>(j)] * dweight[static_cast<std::size_t>(t * s.k + j)];
        }
        return sum;
      };
      if (s.experts > 1 && (s.k > 1 || !normalise)) expect_close(bench.read(dlogits), finite_difference(loss, wide), 1e-5, "dlogits");
      else
        for (float d : bench.read(dlogits)) EXPECT_NEAR(d, 0.0f, 1e-6f);  // its weight is 1 whatever the score
    }
}

// The softmax's written order in plain fp32: the largest logit, an ascending chain, one division.
TEST(Router, SoftmaxFollowsTheWrittenOrder) {
  const std::int64_t T = 12, E = 17, k = 4;
  const auto logits = random_floats(T * E, 15, -6, 6);
  for (bool normalise : {true, false}) {
    KernelBench bench;
    const View expert = bench.zeros(T, k, DType::i32), weight = bench.junk(T, k);
    bench.launch(&KernelTable::router_forward, RouterForward{expert, weight, {}, bench.floats(logits, T, E), {}, normalise, 0.7f, {}, true});
    const auto chosen = bench.read_ints(expert);
    std::vector<float> want;
    for (std::int64_t t = 0; t < T; ++t) {
      std::vector<std::int32_t> of(chosen.begin() + t * k, chosen.begin() + (t + 1) * k), all(E);
      std::iota(all.begin(), all.end(), 0);
      const auto logit = [&](std::int32_t e) { return logits[static_cast<std::size_t>(t * E + e)]; };
      const std::vector<std::int32_t>& share = normalise ? of : all;
      float largest = logit(share[0]), sum = 0.0f;
      for (const std::int32_t e : share) largest = std::max(largest, logit(e));
      for (const std::int32_t e : share) sum = sum + exp_element<ScalarVec>(logit(e) - largest);
      for (const std::int32_t e : of) want.push_back((exp_element<ScalarVec>(logit(e) - largest) / sum) * 0.7f);
    }
    expect_same_words(words_of(bench.read(weight)), words_of(want), "weights");
  }
}

// Groups of three experts, of which two stay: their two largest choices count, equal counts go to the lower group, and an expert of a group
// that left is not chosen however large it is. Biases of -2 put every choice below 0.
TEST(Router, GroupsThatCountLeastAreLeftOut) {
  // Choices are sigmoids - 2: the logits 9, 0, -9 are about 1, 0.5, 0.
  const std::vector<float> logits = {9, -1, -9, 0, 0, -9, 0, 0, -9, 0, -9, 0,   // group 0 counts most, the others the same: group 1 goes before
                                     9, -9, -9, 9, 9, -9, 9, 9, -9, 0, 9,  0,   // group 0 has 1 + 0, group 3 1 + 0.5: groups 1 and 2 stay
                                     0, 0,  0,  0, 0, 0,  0, 0, 0,  0, 0,  0};  // all equal: the first two groups
  KernelBench bench;
  const View expert = bench.zeros(3, 3, DType::i32), weight = bench.junk(3, 3), flags = bench.zeros(3, 1, DType::i32);
  const View bias = bench.floats(std::vector<float>(12, -2.0f), 1, 12);
  const auto run = [&](std::int64_t groups, std::int64_t kept) {
    bench.launch(&KernelTable::router_forward, RouterForward{expert, weight, flags, bench.floats(logits, 3, 12), bias, true, 1.0f, {}, false, groups, kept});
    return bench.read_ints(expert);
  };
  EXPECT_EQ(run(4, 2), (std::vector<std::int32_t>{0, 3, 4, 3, 4, 6, 0, 1, 2}));
  EXPECT_EQ(run(4, 4), run(1, 1));                                               // nothing leaves
  EXPECT_EQ(run(1, 1), (std::vector<std::int32_t>{0, 3, 4, 0, 3, 4, 0, 1, 2}));  // the control: group 0's expert is chosen
  EXPECT_EQ(bench.read_ints(flags), std::vector<std::int32_t>(3, 0));
}

// Against a plain choice over random rows: groups by the sum of two, -infinity elsewhere.
TEST(Router, GroupsAgreeWithAPlainChoice) {
  const std::int64_t T = 60, E = 24, k = 3, groups = 6, kept = 2, size = E / groups;
  const auto logits = random_floats(T * E, 16, -3, 3), bias = random_floats(E, 17, -1.5, -0.5);
  KernelBench bench;
  const View expert = bench.zeros(T, k, DType::i32), weight = bench.junk(T, k);
  bench.launch(&KernelTable::router_forward,
               RouterForward{expert, weight, {}, bench.floats(logits, T, E), bench.floats(bias, 1, E), true, 1.0f, {}, false, groups, kept});
  std::vector<std::int32_t> want;
  for (std::int64_t t = 0; t < T; ++t) {
    std::vector<double> choice, count;
    for (std::int64_t e = 0; e < E; ++e) choice.push_back(sigmoid(logits[static_cast<std::size_t>(t * E + e)]) + bias[static_cast<std::size_t>(e)]);
    for (std::int64_t g = 0; g < groups; ++g) {
      std::vector<double> of(choice.begin() + g * size, choice.begin() + (g + 1) * size);
      std::sort(of.rbegin(), of.rend());
      count.push_back(of[0] + of[1]);
    }
    std::vector<double> sorted = count;
    std::sort(sorted.rbegin(), sorted.rend());
    std::vector<std::int32_t> order;
    for (std::int32_t e = 0; e < E; ++e)
      if (count[static_cast<std::size_t>(e / size)] >= sorted[kept - 1]) order.push_back(e);
    std::stable_sort(order.begin(), order.end(),
                     [&](std::int32_t a, std::int32_t b) { return choice[static_cast<std::size_t>(a)] > choice[static_cast<std::size_t>(b)]; });
    std::sort(order.begin(), order.begin() + k);
    want.insert(want.end(), order.begin(), order.begin() + k);
  }
  EXPECT_EQ(bench.read_ints(expert), want);
}

TEST(Router, SoftmaxAndGroupsAreTheSameEverywhere) {
  struct Rule {
    std::int64_t experts, k, groups, kept;
    bool softmax, normalise, bias;
  };
  for (const Rule& rule : {Rule{33, 5, 1, 1, true, true, false},
                           {17, 4, 1, 1, true, false, false},
                           {12, 3, 4, 2, false, true, true},
                           {40, 8, 20, 4, false, true, true},
                           {15, 3, 3, 1, true, false, true},
                           {10, 3, 1, 1, false, true, false}})
    expect_same_everywhere([&](KernelBench& bench) {
      const std::int64_t T = 35, E = rule.experts, k = rule.k;
      auto logits = random_floats(T * E, 18, -8, 8);
      for (std::int64_t e = 0; e < E; ++e) logits[static_cast<std::size_t>(e)] = e % 2 ? 0.0f : -0.0f;    // ties
      logits[static_cast<std::size_t>(E + 2)] = logits[static_cast<std::size_t>(2 * E)] = std::nanf("");  // NaN in two rows
      const View vlogits = bench.floats(logits, T, E), bias = rule.bias ? bench.floats(random_floats(E, 19, -2, 0), 1, E) : View{};
      const View expert = bench.zeros(T, k, DType::i32), weight = bench.junk(T, k), flags = bench.zeros(T, 1, DType::i32), dlogits = bench.junk(T, E);
      bench.launch(&KernelTable::router_forward,
                   RouterForward{expert, weight, flags, vlogits, bias, rule.normalise, 1.5f, {}, rule.softmax, rule.groups, rule.kept});
      bench.launch(&KernelTable::router_backward,
                   RouterBackward{dlogits, bench.floats(random_floats(T * k, 20), T, k), expert, vlogits, rule.normalise, 1.5f, rule.softmax});
      for (const View& v : {expert, weight, flags, dlogits}) bench.record(v);
      std::vector<std::int32_t> given(static_cast<std::size_t>(T * k), -1);
      for (std::int64_t i = 0; i < 9 * k; ++i) given[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(i % k);
      bench.launch(&KernelTable::router_forward,
                   RouterForward{expert, weight, flags, vlogits, bias, rule.normalise, 1.5f, bench.ints(given, T, k), rule.softmax, rule.groups, rule.kept});
      for (const View& v : {expert, weight, flags}) bench.record(v);
    });
}

TEST(Router, LoadCountsAreAdded) {
  KernelBench bench;
  const View load = bench.ints({100, 0, 0, 0}, 1, 4), expert = bench.ints({0, 1, 1, 3, 0, 3}, 3, 2);
  for (int i = 0; i < 2; ++i) bench.launch(&KernelTable::router_load, RouterLoad{load, expert});
  EXPECT_EQ(bench.read_ints(load), (std::vector<std::int32_t>{104, 4, 0, 4}));
}

TEST(Router, BitsAndHashesAreTheSameEverywhere) {
  for (const RouterShape& s : kRouterShapes)
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
        bench.launch(&KernelTable::router_backward, RouterBackward{dlogits, bench.floats(random_floats(T * s.k, 7), T, s.k), expert, vlogits, normalise, 1.5f});
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
      bench.launch(&KernelTable::router_forward,
                   RouterForward{expert, weight, flags, vlogits, bench.floats({-0.5f, -0.5f, -0.5f, -0.5f, -0.5f}, 1, 5), true, 1.0f});
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
