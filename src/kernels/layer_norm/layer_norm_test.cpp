// LayerNorm: values, adjoints, bins, the same bits on every backend, rows alone.
#include "kernels/kernel_test_tools.h"
#include "kernels/launch.h"

namespace lockstep {
namespace {

constexpr std::int64_t kLayerNormSizes[] = {1, 15, 17, 33, 128};

std::vector<double> layer_norm_reference(const std::vector<double>& x, const std::vector<double>& w, const std::vector<double>& b, double eps) {
  const std::size_t n = w.size();
  std::vector<double> y(x.size());
  for (std::size_t t = 0; t < x.size() / n; ++t) {
    double mean = 0, variance = 0;
    for (std::size_t i = 0; i < n; ++i) mean += x[t * n + i] / static_cast<double>(n);
    for (std::size_t i = 0; i < n; ++i) variance += (x[t * n + i] - mean) * (x[t * n + i] - mean) / static_cast<double>(n);
    for (std::size_t i = 0; i < n; ++i) y[t * n + i] = (x[t * n + i] - mean) / std::sqrt(variance + eps) * w[i] + b[i];
  }
  return y;
}
double layer_norm_weighted(const std::vector<double>& y, const std::vector<float>& dy) {
  double sum = 0;
  for (std::size_t i = 0; i < y.size(); ++i) sum += y[i] * dy[i];
  return sum;
}

TEST(LayerNorm, ForwardAndAdjointsMatchTheReference) {
  for (std::int64_t n : kLayerNormSizes) {
    const std::int64_t T = 5;
    const float eps = 0.01f;
    const auto x = random_floats(T * n, 1, -1, 3), w = random_floats(n, 2, 0.5, 1.5), b = random_floats(n, 3), dy = random_floats(T * n, 4);
    const auto wx = widened(x), ww = widened(w), wb = widened(b);
    KernelBench bench;
    const View y = bench.junk(T, n), vx = bench.floats(x, T, n), vw = bench.floats(w, 1, n);
    bench.launch(&KernelTable::layer_norm_forward, LayerNormForward{y, vx, vw, bench.floats(b, 1, n), eps});
    LayerNormBackward op;
    op.dx = bench.junk(T, n), op.gradient_w = bench.junk(1, n), op.gradient_b = bench.junk(1, n);
    op.dy = bench.floats(dy, T, n), op.x = vx, op.w = vw, op.segment = bench.ints({0, 0, 0, 2, 2}, T), op.eps = eps;
    bench.launch(&KernelTable::layer_norm_backward, op);
    const std::string name = ", n " + std::to_string(n);
    expect_close(bench.read(y), layer_norm_reference(wx, ww, wb, eps), 2e-6, "y" + name);
    if (n > 1)  // of one element the normalised value is 0 and so is dx
      expect_close(bench.read(op.dx), finite_difference([&](const auto& v) { return layer_norm_weighted(layer_norm_reference(v, ww, wb, eps), dy); }, wx), 1e-5,
                   "dx" + name);
    else EXPECT_EQ(bench.read(op.dx), std::vector<float>(T, 0.0f));
    if (n > 1)
      expect_close(bench.read(op.gradient_w),
                   finite_difference([&](const auto& v) { return layer_norm_weighted(layer_norm_reference(wx, v, wb, eps), dy); }, ww), 1e-5, "dw" + name);
    expect_close(bench.read(op.gradient_b), finite_difference([&](const auto& v) { return layer_norm_weighted(layer_norm_reference(wx, ww, v, eps), dy); }, wb),
                 1e-5, "db" + name);
  }
}

TEST(LayerNorm, BinsOverSeveralCallsGiveTheBitsOfOneCallAndDxIsOptional) {
  const std::int64_t T = 260, n = 17;
  std::vector<std::int32_t> segments(T);
  for (int t = 0; t < T; ++t) segments[t] = t;
  KernelBench bench;
  LayerNormBackward op;
  op.x = bench.floats(random_floats(T * n, 5), T, n), op.dy = bench.floats(random_floats(T * n, 6), T, n);
  op.w = bench.floats(random_floats(n, 7), 1, n), op.segment = bench.ints(segments, T);
  op.gradient_w = bench.junk(1, n), op.gradient_b = bench.junk(1, n);
  bench.launch(&KernelTable::layer_norm_backward, op);
  LayerNormBackward part = op;
  part.bins_w = bench.zeros(1, 32, DType::bins), part.bins_b = bench.zeros(1, 32, DType::bins);
  for (int round = 0; round < 2; ++round) {
    const std::pair<int, int> cuts[] = {{150, 110}, {0, 150}};
    for (int i = 0; i < 2; ++i) {
      const auto [begin, count] = cuts[i];
      part.x = op.x.row_range(begin, count), part.dy = op.dy.row_range(begin, count), part.segment = op.segment.row_range(begin, count);
      part.finish = i == 1;
      part.gradient_w = part.finish ? bench.junk(1, n) : View{}, part.gradient_b = part.finish ? bench.junk(1, n) : View{};
      bench.launch(&KernelTable::layer_norm_backward, part);
    }
    expect_same_words(words_of(bench.read(part.gradient_w)), words_of(bench.read(op.gradient_w)), "dw");
    expect_same_words(words_of(bench.read(part.gradient_b)), words_of(bench.read(op.gradient_b)), "db");
  }
}

TEST(LayerNorm, BitsAndHashesAreTheSameEverywhere) {
  for (std::int64_t n : kLayerNormSizes)
    for (DType dtype : {DType::f32, DType::bf16})
      expect_same_everywhere([&](KernelBench& bench) {
        const std::int64_t T = 37;
        std::vector<std::int32_t> segments;
        for (int t = 0; t < T; ++t) segments.push_back(t < 20 ? 0 : t < 21 ? 1 : 2);
        LayerNormBackward op;
        op.x = bench.floats(random_floats(T * n, 8), T, n), op.w = bench.floats(random_floats(n, 9), 1, n, dtype);
        op.dx = bench.junk(T, n), op.gradient_w = bench.junk(1, n), op.gradient_b = bench.junk(1, n);
        op.dy = bench.floats(random_floats(T * n, 10), T, n), op.segment = bench.ints(segments, T);
        const View y = bench.junk(T, n);
        bench.launch(&KernelTable::layer_norm_forward, LayerNormForward{y, op.x, op.w, bench.floats(random_floats(n, 11), 1, n, dtype)});
        bench.launch(&KernelTable::layer_norm_backward, op);
        for (const View& v : {y, op.dx, op.gradient_w, op.gradient_b}) bench.record(v);
        // Without dx, over bins that two calls fill.
        LayerNormBackward part = op;
        part.dx = {}, part.bins_w = bench.zeros(1, (n + 15) / 16 * 16, DType::bins), part.bins_b = bench.zeros(1, (n + 15) / 16 * 16, DType::bins);
        for (const std::int64_t begin : {20, 0}) {
          part.x = op.x.row_range(begin, begin ? T - 20 : 20), part.dy = op.dy.row_range(begin, begin ? T - 20 : 20);
          part.segment = op.segment.row_range(begin, begin ? T - 20 : 20);
          part.finish = begin == 0;
          part.gradient_w = part.finish ? bench.junk(1, n) : View{}, part.gradient_b = part.finish ? bench.junk(1, n) : View{};
          bench.launch(&KernelTable::layer_norm_backward, part);
        }
        expect_same_words(words_of(bench.read(part.gradient_w)), words_of(bench.read(op.gradient_w)), "dw of two calls");
        bench.record(part.gradient_w), bench.record(part.gradient_b);
      });
}

TEST(LayerNorm, ARowHasTheSameBitsAlone) {
  const std::int64_t T = 40, n = 33;
  KernelBench bench;
  LayerNormBackward op;
  op.x = bench.floats(random_floats(T * n, 12), T, n), op.dy = bench.floats(random_floats(T * n, 13), T, n);
  op.w = bench.floats(random_floats(n, 14), 1, n), op.dx = bench.junk(T, n);
  const View b = bench.floats(random_floats(n, 15), 1, n), y = bench.junk(T, n);
  bench.launch(&KernelTable::layer_norm_forward, LayerNormForward{y, op.x, op.w, b});
  bench.launch(&KernelTable::layer_norm_backward, op);
  for (std::int64_t t : {0, 13, 39}) {
    LayerNormBackward one = op;
    one.x = op.x.row_range(t, 1), one.dy = op.dy.row_range(t, 1), one.dx = bench.junk(1, n);
    const View alone = bench.junk(1, n);
    bench.launch(&KernelTable::layer_norm_forward, LayerNormForward{alone, one.x, op.w, b});
    bench.launch(&KernelTable::layer_norm_backward, one);
    expect_same_words(words_of(bench.read(alone)), words_of(bench.read(y.row_range(t, 1))), "y");
    expect_same_words(words_of(bench.read(one.dx)), words_of(bench.read(op.dx.row_range(t, 1))), "dx");
  }
}

}  // namespace
}  // namespace lockstep
