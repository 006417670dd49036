// RMSNorm: values, adjoints, the written order, the same bits on every backend, rows alone; sums that it makes on the way are those of an add.
#include "kernels/kernel_test_tools.h"
#include "kernels/launch.h"

namespace lockstep {
namespace {

constexpr std::int64_t kRmsNormSizes[] = {1, 15, 17, 33, 128};

std::vector<double> rms_norm_reference(const std::vector<double>& x, const std::vector<double>& w, double eps) {
  const std::size_t n = w.size();
  std::vector<double> y(x.size());
  for (std::size_t t = 0; t < x.size() / n; ++t) {
    double square = 0;
    for (std::size_t i = 0; i < n; ++i) square += x[t * n + i] * x[t * n + i];
    const double r = 1 / std::sqrt(square / static_cast<double>(n) + eps);
    for (std::size_t i = 0; i < n; ++i) y[t * n + i] = x[t * n + i] * r * w[i];
  }
  return y;
}
double rms_norm_weighted(const std::vector<double>& y, const std::vector<float>& dy) {
  double sum = 0;
  for (std::size_t i = 0; i < y.size(); ++i) sum += y[i] * dy[i];
  return sum;
}

TEST(RmsNorm, ForwardMatchesTheReference) {
  for (std::int64_t n : kRmsNormSizes)
    for (float eps : {1e-6f, 0.03f}) {
      const std::int64_t T = 18;
      const auto x = random_floats(T * n, 1, -2, 2), w = random_floats(n, 2, 0.5, 1.5);
      KernelBench bench;
      const View y = bench.junk(T, n);
      bench.launch(&KernelTable::rms_norm_forward, RmsNormForward{y, bench.floats(x, T, n), bench.floats(w, 1, n), eps});
      expect_close(bench.read(y), rms_norm_reference(widened(x), widened(w), eps), 1e-6, "n " + std::to_string(n));
    }
}

TEST(RmsNorm, AdjointsMatchFiniteDifferences) {
  for (std::int64_t n : kRmsNormSizes) {
    const std::int64_t T = 5;
    const float eps = 0.03f;
    const auto x = random_floats(T * n, 3, -2, 2), w = random_floats(n, 4, 0.5, 1.5), dy = random_floats(T * n, 5);
    KernelBench bench;
    const View dx = bench.junk(T, n), dw = bench.junk(1, n);
    RmsNormBackward op;
    op.dx = dx, op.gradient = dw, op.dy = bench.floats(dy, T, n), op.x = bench.floats(x, T, n), op.w = bench.floats(w, 1, n);
    op.segment = bench.ints({0, 0, 0, 1, 1}, T), op.eps = eps;
    bench.launch(&KernelTable::rms_norm_backward, op);
    expect_close(bench.read(dx), finite_difference([&](const auto& v) { return rms_norm_weighted(rms_norm_reference(v, widened(w), eps), dy); }, widened(x)),
                 1e-5, "dx, n " + std::to_string(n));
    expect_close(bench.read(dw), finite_difference([&](const auto& v) { return rms_norm_weighted(rms_norm_reference(widened(x), v, eps), dy); }, widened(w)),
                 1e-5, "dw, n " + std::to_string(n));
  }
}

// The header's order, written out in plain fp32.
float tree(float* lane) {
  for (int half = 8; half >= 1; half /= 2)
    for (int i = 0; i < half; ++i) lane[i] = lane[i] + lane[i + half];
  return lane[0];
}

TEST(RmsNorm, FollowsTheWrittenOrder) {
  const std::int64_t T = 21, n = 33;
  const float eps = 1e-6f, count = 33.0f;
  const auto x = random_floats(T * n, 6, -2, 2), w = random_floats(n, 7, 0.5, 1.5), dy = random_floats(T * n, 8);
  std::vector<float> y(x.size()), dx(x.size()), dw(static_cast<std::size_t>(n));
  std::vector<std::vector<float>> chains(static_cast<std::size_t>(n), std::vector<float>(16, 0.0f));
  for (std::int64_t t = 0; t < T; ++t) {
    const float *xt = &x[t * n], *dyt = &dy[t * n];
    float square[16] = {}, product[16] = {};
    for (int i = 0; i < n; ++i) square[i % 16] = std::fma(xt[i], xt[i], square[i % 16]);
    const float r = 1.0f / std::sqrt(tree(square) / count + eps);
    for (int i = 0; i < n; ++i) {
      const float g = dyt[i] * w[i], normalised = xt[i] * r;
      product[i % 16] = std::fma(g, normalised, product[i % 16]);
      y[t * n + i] = normalised * w[i];
      chains[i][t % 16] = std::fma(dyt[i], normalised, chains[i][t % 16]);
    }
    const float m = tree(product) / count;
    for (int i = 0; i < n; ++i) dx[t * n + i] = r * (dyt[i] * w[i] - (xt[i] * r) * m);
  }
  for (int i = 0; i < n; ++i) dw[i] = tree(chains[i].data());  // one segment: one deposit, exact
  KernelBench bench;
  const View vx = bench.floats(x, T, n), vw = bench.floats(w, 1, n), vy = bench.junk(T, n), vdx = bench.junk(T, n), vdw = bench.junk(1, n);
  bench.launch(&KernelTable::rms_norm_forward, RmsNormForward{vy, vx, vw, eps});
  bench.launch(&KernelTable::rms_norm_backward,
               RmsNormBackward{vdx, vdw, {}, true, bench.floats(dy, T, n), vx, vw, bench.ints(std::vector<std::int32_t>(T, 0), T), eps});
  expect_same_words(words_of(bench.read(vy)), words_of(y), "y");
  expect_same_words(words_of(bench.read(vdx)), words_of(dx), "dx");
  expect_same_words(words_of(bench.read(vdw)), words_of(dw), "dw");
}

// Heads are rows of their own, counted through within a segment of the batch's rows.
TEST(RmsNorm, HeadsAreRowsThatShareASegment) {
  const std::int64_t T = 9, heads = 3, n = 20, rows = T * heads;
  std::vector<std::int32_t> of_rows, of_heads;
  for (int t = 0; t < T; ++t) of_rows.push_back(t < 7 ? 0 : 1);  // 21 head rows: more than one a chain
  for (int i = 0; i < rows; ++i) of_heads.push_back(of_rows[i / heads]);
  KernelBench bench;
  RmsNormBackward op;
  op.x = bench.floats(random_floats(rows * n, 20), rows, n), op.dy = bench.floats(random_floats(rows * n, 21), rows, n);
  op.w = bench.floats(random_floats(n, 22), 1, n), op.dx = bench.junk(rows, n);
  const View plain = bench.junk(1, n), by_head = bench.junk(1, n), whole = bench.junk(1, n);
  op.gradient = plain, op.segment = bench.ints(of_heads, rows);
  bench.launch(&KernelTable::rms_norm_backward, op);
  op.gradient = by_head, op.segment = bench.ints(of_rows, T), op.heads = heads;
  bench.launch(&KernelTable::rms_norm_backward, op);
  expect_same_words(words_of(bench.read(by_head)), words_of(bench.read(plain)), "dw");
  op.gradient = whole, op.segment = bench.ints(std::vector<std::int32_t>(T, 0), T);
  bench.launch(&KernelTable::rms_norm_backward, op);
  EXPECT_NE(bench.read(whole), bench.read(by_head));  // segments do show in the bits
}

TEST(RmsNorm, BinsOverSeveralCallsGiveTheBitsOfOneCall) {
  const std::int64_t T = 260, n = 17;
  std::vector<std::int32_t> segments(T);
  for (int t = 0; t < T; ++t) segments[t] = t;  // more deposits than fit between carries
  KernelBench bench;
  RmsNormBackward op;
  op.x = bench.floats(random_floats(T * n, 9), T, n), op.dy = bench.floats(random_floats(T * n, 10), T, n);
  op.w = bench.floats(random_floats(n, 11), 1, n), op.segment = bench.ints(segments, T);
  const View once = bench.junk(1, n), parts = bench.junk(1, n);
  op.dx = bench.junk(T, n), op.gradient = once;
  bench.launch(&KernelTable::rms_norm_backward, op);
  const View bins = bench.zeros(1, 32, DType::bins);
  const RmsNormBackward whole = op;
  for (int round = 0; round < 2; ++round) {
    const std::pair<int, int> cuts[] = {{100, 160}, {0, 100}};
    for (int i = 0; i < 2; ++i) {
      const auto [begin, count] = cuts[i];
      op.x = whole.x.row_range(begin, count), op.dy = whole.dy.row_range(begin, count), op.segment = whole.segment.row_range(begin, count);
      op.dx = whole.dx.row_range(begin, count), op.bins = bins, op.finish = i == 1, op.gradient = op.finish ? parts : View{};
      bench.launch(&KernelTable::rms_norm_backward, op);
    }
    expect_same_words(words_of(bench.read(parts)), words_of(bench.read(once)), "round " + std::to_string(round));
  }
}

TEST(RmsNorm, BitsAndHashesAreTheSameEverywhere) {
  for (std::int64_t n : kRmsNormSizes)
    for (DType dtype : {DType::f32, DType::bf16})
      expect_same_everywhere([&](KernelBench& bench) {
        const std::int64_t T = 37;
        std::vector<std::int32_t> segments;
        for (int t = 0; t < T; ++t) segments.push_back(t < 20 ? 0 : t < 21 ? 1 : 2);
        // x and y are column ranges, as the latent beside the rotary key is.
        const View x = bench.floats(random_floats(T * (n + 5), 12), T, n + 5).column_range(3, n), w = bench.floats(random_floats(n, 13), 1, n, dtype);
        const View wide = bench.junk(T, n + 2), dx = bench.junk(T, n), dw = bench.junk(1, n);
        bench.launch(&KernelTable::rms_norm_forward, RmsNormForward{wide.column_range(1, n), x, w, 1e-5f});
        bench.launch(&KernelTable::rms_norm_backward,
                     RmsNormBackward{dx, dw, {}, true, bench.floats(random_floats(T * n, 14), T, n), x, w, bench.ints(segments, T), 1e-5f});
        for (const View& v : {wide, dx, dw}) bench.record(v);
      });
}

// Random values, in the first rows what a sum may lose: a NaN, zeros of one sign, denormals, a sum that overflows.
std::vector<float> rms_norm_awkward(std::int64_t T, std::int64_t n, std::uint64_t seed) {
  std::vector<float> x = random_floats(T * n, seed, -2, 2);
  x[0] = std::nanf("");
  for (std::int64_t i = 0; i < n; ++i) x[n + i] = -0.0f, x[2 * n + i] *= 1e-41f, x[3 * n + i] = 3e38f;
  return x;
}
// Bits, every NaN as one, and on the traced backend the expressions.
std::vector<std::uint64_t> rms_norm_words(KernelBench& bench, const View& v) {
  std::vector<std::uint64_t> words;
  for (float x : bench.read(v)) words.push_back(std::isnan(x) ? 0x7fc00000u : float_bits(x));
  if (!bench.traced()) return words;
  const std::vector<std::uint64_t> hashes = bench.backend().stream().read_hashes(v).get();
  words.insert(words.end(), hashes.begin(), hashes.end());
  return words;
}
// Rows and columns: more rows than a block, rows of several pieces of a GPU's shared memory.
constexpr std::pair<std::int64_t, std::int64_t> kRmsNormSumShapes[] = {{4, 1}, {37, 15}, {37, 17}, {37, 33}, {37, 128}, {5, 2100}};

TEST(RmsNorm, OfASumIsAnAddAndANormInEveryBit) {
  for (const auto& [rows, n] : kRmsNormSumShapes)
    for (const DType dtype : {DType::f32, DType::bf16})
      expect_same_everywhere([&, T = rows, n = n](KernelBench& bench) {
        const View a = bench.floats(rms_norm_awkward(T, n, 30), T, n), b = bench.floats(rms_norm_awkward(T, n, 31), T, n), same_b = bench.junk(T, n);
        const View w = bench.floats(random_floats(n, 32, 0.5, 1.5), 1, n, dtype), sum = bench.junk(T, n), y = bench.junk(T, n), of_place = bench.junk(T, n);
        bench.launch(&KernelTable::add, Add{sum, a, b});
        bench.launch(&KernelTable::rms_norm_forward, RmsNormForward{y, sum, w, 1e-5f});
        const std::vector<std::uint64_t> want_sum = rms_norm_words(bench, sum), want = rms_norm_words(bench, y);
        // Column ranges, as views may be: what stands beside them stays.
        const View wide = bench.junk(T, 2 * n + 3), sum_at_once = wide.column_range(1, n), at_once = wide.column_range(n + 2, n);
        bench.launch(&KernelTable::rms_norm_forward, RmsNormForward{at_once, a, w, 1e-5f, b, sum_at_once});
        expect_same_words(rms_norm_words(bench, sum_at_once), want_sum, "sum");
        expect_same_words(rms_norm_words(bench, at_once), want, "norm");
        for (const std::int64_t column : {std::int64_t{0}, n + 1, 2 * n + 2})
          for (float beside : bench.read(wide.column_range(column, 1))) EXPECT_EQ(beside, 12345.0f);
        bench.backend().stream().copy(same_b, b);
        for (const View& place : {b, a}) {  // the sum where the addend is, then where x is
          bench.launch(&KernelTable::rms_norm_forward, RmsNormForward{of_place, a, w, 1e-5f, place.address == b.address ? b : same_b, place});
          expect_same_words(rms_norm_words(bench, place), want_sum, "sum in place");
          expect_same_words(rms_norm_words(bench, of_place), want, "norm of a sum in place");
        }
        bench.record(wide);
      });
}

TEST(RmsNorm, AGradientOntoWhichItAddsIsAnAddInEveryBit) {
  for (const auto& [rows, n] : kRmsNormSumShapes)
    expect_same_everywhere([&, T = rows, n = n](KernelBench& bench) {
      const View dx = bench.junk(T, n), total = bench.junk(T, n), dw = bench.junk(1, n), dw_at_once = bench.junk(1, n);
      RmsNormBackward op;
      op.dx = dx, op.gradient = dw, op.x = bench.floats(random_floats(T * n, 33, -2, 2), T, n), op.dy = bench.floats(rms_norm_awkward(T, n, 34), T, n);
      op.w = bench.floats(random_floats(n, 35, 0.5, 1.5), 1, n), op.segment = bench.ints(std::vector<std::int32_t>(static_cast<std::size_t>(T), 0), T);
      const View before = bench.floats(rms_norm_awkward(T, n + 3, 36), T, n + 3).column_range(2, n);
      bench.launch(&KernelTable::rms_norm_backward, op);
      bench.launch(&KernelTable::add, Add{total, before, dx});
      const View wide = bench.junk(T, n + 2), at_once = wide.column_range(1, n);
      op.dx = at_once, op.gradient = dw_at_once, op.onto = before;
      bench.launch(&KernelTable::rms_norm_backward, op);
      expect_same_words(rms_norm_words(bench, at_once), rms_norm_words(bench, total), "dx");
      expect_same_words(rms_norm_words(bench, dw_at_once), rms_norm_words(bench, dw), "dw");
      EXPECT_NE(rms_norm_words(bench, at_once), rms_norm_words(bench, dx));
      for (const std::int64_t column : {std::int64_t{0}, n + 1})
        for (float beside : bench.read(wide.column_range(column, 1))) EXPECT_EQ(beside, 12345.0f);
      bench.record(wide);
    });
}

TEST(RmsNorm, ARowHasTheSameBitsAlone) {
  const std::int64_t T = 40, n = 33;
  KernelBench bench;
  RmsNormBackward op;
  op.x = bench.floats(random_floats(T * n, 15), T, n), op.dy = bench.floats(random_floats(T * n, 16), T, n);
  op.w = bench.floats(random_floats(n, 17), 1, n), op.dx = bench.junk(T, n);
  const View y = bench.junk(T, n);
  bench.launch(&KernelTable::rms_norm_forward, RmsNormForward{y, op.x, op.w});
  bench.launch(&KernelTable::rms_norm_backward, op);
  for (std::int64_t t : {0, 13, 39}) {
    RmsNormBackward one = op;
    one.x = op.x.row_range(t, 1), one.dy = op.dy.row_range(t, 1), one.dx = bench.junk(1, n);
    const View alone = bench.junk(1, n);
    bench.launch(&KernelTable::rms_norm_forward, RmsNormForward{alone, one.x, op.w});
    bench.launch(&KernelTable::rms_norm_backward, one);
    expect_same_words(words_of(bench.read(alone)), words_of(bench.read(y.row_range(t, 1))), "y");
    expect_same_words(words_of(bench.read(one.dx)), words_of(bench.read(op.dx.row_range(t, 1))), "dx");
  }
}

}  // namespace
}  // namespace lockstep
