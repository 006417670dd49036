// The optimizer: the norm is order-free and refuses NaN, infinity and overflow; AdamW follows the written order; bins finish once.
#include "kernels/kernel_test_tools.h"
#include "kernels/launch.h"

namespace lockstep {
namespace {

float norm_of(KernelBench& bench, const std::vector<std::vector<float>>& tensors) {
  SquareSum op{bench.junk(1, 1), {}};
  for (const auto& t : tensors) op.gradients.push_back(bench.floats(t, 1, static_cast<std::int64_t>(t.size())));
  bench.launch(&KernelTable::square_sum, op);
  return bench.read(op.norm)[0];
}

TEST(SquareSum, MatchesLongDoubleAndDoesNotSeeHowTensorsAreCut) {
  KernelBench bench;
  for (std::int64_t n : {1, 15, 17, 33, 16384, 50001}) {
    const auto g = random_floats(n, 1, -3, 3);
    long double sum = 0;
    for (float v : g) sum += static_cast<long double>(v) * v;
    const float norm = norm_of(bench, {g});
    EXPECT_EQ(norm, static_cast<float>(std::sqrt(static_cast<double>(sum)))) << n;
    std::vector<float> reversed(g.rbegin(), g.rend());
    EXPECT_EQ(float_bits(norm_of(bench, {reversed})), float_bits(norm));
    if (n > 20) {
      EXPECT_EQ(float_bits(norm_of(bench, {{g.begin() + 13, g.end()}, {}, {g.begin(), g.begin() + 13}})), float_bits(norm));
    }
  }
  EXPECT_EQ(norm_of(bench, {}), 0.0f);
  EXPECT_EQ(norm_of(bench, {{0.0f, -0.0f}}), 0.0f);
}

TEST(SquareSum, NanInfinityAndOverflowMakeTheNormNan) {
  KernelBench bench;
  auto g = random_floats(40000, 2);
  for (float bad : {std::nanf(""), INFINITY, -INFINITY, 1.5e6f, 3e38f}) {
    auto broken = g;
    broken[33333] = bad;
    EXPECT_TRUE(std::isnan(norm_of(bench, {g, broken}))) << bad;
  }
  EXPECT_EQ(norm_of(bench, {{1e6f}}), 1e6f);
  EXPECT_TRUE(std::isnan(norm_of(bench, {std::vector<float>(100, 1e6f)})));  // the sum, not a term, is too large
}

struct Hyper {
  float learning_rate = 0.01f, beta1 = 0.9f, beta2 = 0.95f, eps = 1e-8f, weight_decay = 0.1f, max_norm = 0.7f;
};
AdamW adamw_arguments(const Hyper& h, int step) {
  AdamW op;
  op.learning_rate = h.learning_rate, op.beta1 = h.beta1, op.beta2 = h.beta2, op.eps = h.eps, op.weight_decay = h.weight_decay, op.max_norm = h.max_norm;
  op.bias1 = static_cast<float>(1 - std::pow(static_cast<double>(h.beta1), step));
  op.bias2 = static_cast<float>(1 - std::pow(static_cast<double>(h.beta2), step));
  return op;
}

TEST(AdamW, SeveralStepsMatchADoubleReferenceAndTheWrittenOrder) {
  for (std::int64_t n : {1, 15, 17, 33, 20000}) {
    const Hyper h;
    auto master = random_floats(n, 3);
    std::vector<float> m(master.size(), 0.0f), v(master.size(), 0.0f);
    std::vector<double> wide = widened(master), wide_m(master.size()), wide_v(master.size());
    KernelBench bench;
    View vmaster = bench.floats(master, 1, n), next = bench.junk(1, n);
    const View vm = bench.zeros(1, n), vv = bench.zeros(1, n), compute = bench.zeros(1, n, DType::bf16);
    for (int step = 1; step <= 4; ++step) {
      const auto g = random_floats(n, 10 + static_cast<std::uint64_t>(step));
      const float norm = 1.4f;
      AdamW op = adamw_arguments(h, step);
      op.master = vmaster, op.master_out = next, op.compute_out = compute, op.m = vm, op.v = vv;
      op.gradient = bench.floats(g, 1, n), op.norm = bench.floats({norm}, 1, 1);
      bench.launch(&KernelTable::adamw, op);
      const float clip = std::min(1.0f, h.max_norm / norm);
      for (std::size_t i = 0; i < master.size(); ++i) {
        const float gc = g[i] * clip;
        m[i] = std::fma(h.beta1, m[i], (1.0f - h.beta1) * gc);
        v[i] = std::fma(h.beta2, v[i], ((1.0f - h.beta2) * gc) * gc);
        const float update = (m[i] / op.bias1) / (std::sqrt(v[i] / op.bias2) + h.eps);
        master[i] = master[i] - h.learning_rate * std::fma(h.weight_decay, master[i], update);
        const double gd = g[i] * 0.5;
        wide_m[i] = 0.9 * wide_m[i] + 0.1 * gd;
        wide_v[i] = 0.95 * wide_v[i] + 0.05 * gd * gd;
        wide[i] -= 0.01 * (wide_m[i] / (1 - std::pow(0.9, step)) / (std::sqrt(wide_v[i] / (1 - std::pow(0.95, step))) + 1e-8) + 0.1 * wide[i]);
      }
      expect_same_words(words_of(bench.read(next)), words_of(master), "master");
      expect_same_words(words_of(bench.read(vm)), words_of(m), "m");
      expect_same_words(words_of(bench.read(vv)), words_of(v), "v");
      std::vector<float> rounded;
      for (float x : master) rounded.push_back(widen(round_to_bf16(x)));
      expect_same_words(words_of(bench.read(compute)), words_of(rounded), "compute copy");
      std::swap(vmaster, next);
    }
    expect_close(bench.read(vmaster), wide, 1e-5, "master against double");
  }
}

TEST(AdamW, PaddingStaysZeroAndClippingIsOptional) {
  KernelBench bench;
  AdamW op = adamw_arguments({}, 1);
  const View zero = bench.zeros(1, 32), m = bench.zeros(1, 32), v = bench.zeros(1, 32);
  op.master = op.master_out = zero, op.m = m, op.v = v, op.gradient = bench.zeros(1, 32), op.norm = bench.zeros(1, 1);
  bench.launch(&KernelTable::adamw, op);  // norm 0: clip 1
  for (const View& view : {zero, m, v}) expect_same_words(words_of(bench.read(view)), std::vector<std::uint64_t>(32, 0), "padding");
  op.max_norm = 0, op.norm = {};
  op.gradient = bench.floats(random_floats(32, 20), 1, 32);
  bench.launch(&KernelTable::adamw, op);
  for (float x : bench.read(zero)) EXPECT_NEAR(std::fabs(x), 0.01f, 1e-4f);  // the first step is lr * sign(g)
  op.max_norm = 1, op.norm = bench.floats({std::nanf("")}, 1, 1);
  bench.launch(&KernelTable::adamw, op);
  for (float x : bench.read(zero)) EXPECT_TRUE(std::isnan(x));
}

TEST(FinishBins, EmptiesPackedAndRowMajorBins) {
  // Bins are filled by norm gradients (a row of 32, as packed) and embedding gradients (rows of 17).
  KernelBench bench;
  const std::int64_t T = 9;
  const View segment = bench.ints({0, 0, 1, 1, 2, 3, 4, 5, 6}, T);
  for (std::int64_t n : {32, 17}) {
    const View bins = bench.zeros(n == 32 ? 1 : 5, 32, DType::bins), once = bench.junk(bins.rows, n), later = bench.junk(bins.rows, n);
    const View dy = bench.floats(random_floats(T * n, 21), T, n), x = bench.floats(random_floats(T * n, 22), T, n);
    for (bool finish : {true, false}) {
      const View gradient = finish ? once : View{}, held = finish ? View{} : bins;
      if (n == 32)
        bench.launch(&KernelTable::rms_norm_backward,
                     RmsNormBackward{bench.junk(T, n), gradient, held, finish, dy, x, bench.floats(random_floats(n, 23), 1, n), segment, 1e-6f});
      else bench.launch(&KernelTable::embedding_backward, EmbeddingBackward{gradient, held, finish, dy, bench.ints({0, 1, 2, 3, 4, 0, 1, 2, 3}, T), segment});
    }
    const FinishBins op{later, bins, n == 32 ? 0 : n};
    bench.launch(&KernelTable::finish_bins, op);
    expect_same_words(words_of(bench.read(later)), words_of(bench.read(once)), "gradient");
    bench.launch(&KernelTable::finish_bins, op);
    expect_same_words(words_of(bench.read(later)), std::vector<std::uint64_t>(static_cast<std::size_t>(later.size()), 0), "emptied");
  }
}

TEST(Optimizer, BitsAndHashesAreTheSameEverywhere) {
  for (std::int64_t n : {1, 15, 17, 33, 40000})
    for (DType dtype : {DType::f32, DType::bf16})
      expect_same_everywhere([&](KernelBench& bench) {
        AdamW op = adamw_arguments({}, 3);
        op.master = bench.floats(random_floats(n, 30), 1, n), op.master_out = bench.junk(1, n), op.compute_out = bench.zeros(1, n, dtype);
        op.m = bench.floats(random_floats(n, 31, -0.1, 0.1), 1, n), op.v = bench.floats(random_floats(n, 32, 0, 0.1), 1, n);
        op.gradient = bench.floats(random_floats(n, 33), 1, n), op.norm = bench.junk(1, 1);
        bench.launch(&KernelTable::square_sum, SquareSum{op.norm, {op.gradient, bench.floats(random_floats(17, 34), 1, 17)}});
        bench.launch(&KernelTable::adamw, op);
        for (const View& v : {op.norm, op.m, op.v, op.master_out, op.compute_out}) bench.record(v);
      });
}

// Many tensors, some of them empty; sums that are none; steps without clipping and with a norm that is none.
TEST(Optimizer, ManyTensorsAndNumbersThatAreNoneAreTheSameEverywhere) {
  expect_same_everywhere([&](KernelBench& bench) {
    SquareSum many{bench.junk(1, 1), {}};
    for (std::uint64_t i = 0; i < 150; ++i) {
      const auto n = static_cast<std::int64_t>(i % 7 * 11);
      many.gradients.push_back(bench.floats(random_floats(n, i, -2, 2), 1, n));
    }
    bench.launch(&KernelTable::square_sum, many);
    bench.record(many.norm);
    for (std::uint64_t i = 0; i < 64; ++i) {  // few elements: a square that was rounded shows
      SquareSum few{bench.junk(1, 1), {bench.floats(random_floats(3, 200 + i), 1, 3)}};
      bench.launch(&KernelTable::square_sum, few);
      bench.record(few.norm);
    }
    for (const float bad : {std::nanf(""), INFINITY, 1.5e6f, 1e6f}) {
      auto g = random_floats(20000, 2);
      g[16400] = bad;
      SquareSum op{bench.junk(1, 1), {bench.floats(g, 1, 20000)}};
      bench.launch(&KernelTable::square_sum, op);
      bench.record(op.norm);
      AdamW step = adamw_arguments({}, 1);
      step.master = step.master_out = bench.floats(random_floats(33, 3), 1, 33), step.m = bench.zeros(1, 33), step.v = bench.zeros(1, 33);
      step.gradient = bench.floats(random_floats(33, 4), 1, 33), step.norm = op.norm;
      bench.launch(&KernelTable::adamw, step);
      bench.record(step.master);
      step.max_norm = 0, step.norm = {};
      bench.launch(&KernelTable::adamw, step);
      for (const View& v : {step.master, step.m, step.v}) bench.record(v);
    }
  });
}

}  // namespace
}  // namespace lockstep
