// The bias of a linear layer: values, gradient, the written order, the same bits on every backend, rows alone.
#include "kernels/kernel_test_tools.h"
#include "kernels/launch.h"

namespace lockstep {
namespace {

constexpr std::int64_t kBiasSizes[] = {1, 15, 17, 33};

TEST(Bias, IsAddedToEveryRow) {
  for (std::int64_t n : kBiasSizes) {
    const std::int64_t T = 19;
    const auto before = random_floats(T * (n + 3), 1), b = random_floats(n, 2);
    KernelBench bench;
    const View wide = bench.floats(before, T, n + 3);
    bench.launch(&KernelTable::bias_add, BiasAdd{wide.column_range(2, n), bench.floats(b, 1, n)});
    std::vector<float> want = before;  // the columns beside it stay
    for (std::int64_t t = 0; t < T; ++t)
      for (std::int64_t i = 0; i < n; ++i) want[static_cast<std::size_t>(t * (n + 3) + 2 + i)] += b[static_cast<std::size_t>(i)];
    expect_same_words(words_of(bench.read(wide)), words_of(want), "n " + std::to_string(n));
  }
}

// Per segment sixteen chains, row i in chain i mod 16, joined by the tree; segments are deposits, whose sum here is exact.
TEST(Bias, GradientFollowsTheWrittenOrder) {
  const std::int64_t T = 21, n = 33;
  const auto dy = random_floats(T * n, 3);
  std::vector<float> want;
  for (std::int64_t i = 0; i < n; ++i) {
    float lane[16] = {};
    for (std::int64_t t = 0; t < T; ++t) lane[t % 16] = std::fma(dy[static_cast<std::size_t>(t * n + i)], 1.0f, lane[t % 16]);
    for (int half = 8; half >= 1; half /= 2)
      for (int k = 0; k < half; ++k) lane[k] = lane[k] + lane[k + half];
    want.push_back(lane[0]);
  }
  KernelBench bench;
  const View db = bench.junk(1, n);
  bench.launch(&KernelTable::bias_backward, BiasBackward{db, {}, true, bench.floats(dy, T, n), bench.ints(std::vector<std::int32_t>(T, 0), T)});
  expect_same_words(words_of(bench.read(db)), words_of(want), "db");
}

TEST(Bias, BinsOverSeveralCallsGiveTheBitsOfOneCall) {
  const std::int64_t T = 260, n = 17;
  std::vector<std::int32_t> segments(T);
  for (int t = 0; t < T; ++t) segments[static_cast<std::size_t>(t)] = t;  // more deposits than fit between carries
  KernelBench bench;
  const View dy = bench.floats(random_floats(T * n, 4), T, n), segment = bench.ints(segments, T);
  const View once = bench.junk(1, n), parts = bench.junk(1, n), bins = bench.zeros(1, 32, DType::bins);
  bench.launch(&KernelTable::bias_backward, BiasBackward{once, {}, true, dy, segment});
  for (int round = 0; round < 2; ++round) {
    bench.launch(&KernelTable::bias_backward, BiasBackward{{}, bins, false, dy.row_range(100, 160), segment.row_range(100, 160)});
    bench.launch(&KernelTable::bias_backward, BiasBackward{parts, bins, true, dy.row_range(0, 100), segment.row_range(0, 100)});
    expect_same_words(words_of(bench.read(parts)), words_of(bench.read(once)), "round " + std::to_string(round));
  }
}

TEST(Bias, BitsAndHashesAreTheSameEverywhere) {
  for (std::int64_t n : kBiasSizes)
    for (DType dtype : {DType::f32, DType::bf16})
      expect_same_everywhere([&](KernelBench& bench) {
        const std::int64_t T = 37;
        std::vector<std::int32_t> segments;
        for (int t = 0; t < T; ++t) segments.push_back(t < 20 ? 0 : t < 21 ? 1 : 2);
        const View y = bench.floats(random_floats(T * n, 5), T, n), db = bench.junk(1, n);
        bench.launch(&KernelTable::bias_add, BiasAdd{y, bench.floats(random_floats(n, 6), 1, n, dtype)});
        bench.launch(&KernelTable::bias_backward, BiasBackward{db, {}, true, bench.floats(random_floats(T * n, 7), T, n), bench.ints(segments, T)});
        for (const View& v : {y, db}) bench.record(v);
      });
}

// Slots of four experts, the third without one: each gets its own bias, and a gradient of its slots alone, cut where the segments of their rows
// change and counted from its first.
struct ExpertSlots {
  std::vector<std::int32_t> offsets = {0, 3, 20, 20, 23}, row_of, segments;
  std::int64_t slots = 23, count = 4;
  ExpertSlots() {
    for (int row : {1, 4, 9}) row_of.push_back(row);
    for (int row = 0; row < 17; ++row) row_of.push_back(row);
    for (int row : {0, 12, 16}) row_of.push_back(row);
    for (int t = 0; t < 17; ++t) segments.push_back(t < 6 ? 0 : 1);
  }
};

TEST(Bias, ExpertsHaveTheirOwnAndFollowTheWrittenOrder) {
  const ExpertSlots s;
  for (std::int64_t n : kBiasSizes) {
    const auto before = random_floats(s.slots * n, 8), b = random_floats(s.count * n, 9), dy = random_floats(s.slots * n, 10);
    KernelBench bench;
    const View y = bench.floats(before, s.slots, n), offsets = bench.ints(s.offsets, 5), row_of = bench.ints(s.row_of, s.slots), db = bench.junk(s.count, n);
    bench.launch(&KernelTable::bias_add, BiasAdd{y, bench.floats(b, s.count, n), offsets});
    bench.launch(&KernelTable::bias_backward, BiasBackward{db, {}, true, bench.floats(dy, s.slots, n), bench.ints(s.segments, 17), offsets, row_of});
    std::vector<float> sum = before, gradient;
    for (std::size_t g = 0; g < 4; ++g)
      for (std::int64_t i = 0; i < n; ++i) {
        double total = 0;  // of the segments, exact
        for (const int segment : {0, 1}) {
          float lane[16] = {};
          int at = 0;
          for (std::int32_t slot = s.offsets[g]; slot < s.offsets[g + 1]; ++slot) {
            if (s.segments[static_cast<std::size_t>(s.row_of[static_cast<std::size_t>(slot)])] != segment) continue;
            lane[at % 16] += dy[static_cast<std::size_t>(slot * n + i)], ++at;
          }
          for (int half = 8; half >= 1; half /= 2)
            for (int k = 0; k < half; ++k) lane[k] = lane[k] + lane[k + half];
          total += static_cast<double>(lane[0]);
        }
        gradient.push_back(static_cast<float>(total));
        for (std::int32_t slot = s.offsets[g]; slot < s.offsets[g + 1]; ++slot)
          sum[static_cast<std::size_t>(slot * n + i)] += b[g * static_cast<std::size_t>(n) + static_cast<std::size_t>(i)];
      }
    expect_same_words(words_of(bench.read(y)), words_of(sum), "y");
    expect_same_words(words_of(bench.read(db)), words_of(gradient), "db");
  }
}

TEST(Bias, ExpertsAreTheSameEverywhereAndAccumulate) {
  const ExpertSlots s;
  for (std::int64_t n : kBiasSizes)
    expect_same_everywhere([&](KernelBench& bench) {
      const View y = bench.floats(random_floats(s.slots * n, 11), s.slots, n), offsets = bench.ints(s.offsets, 5), row_of = bench.ints(s.row_of, s.slots);
      const View db = bench.junk(s.count, n), bins = bench.zeros(s.count, (n + 15) / 16 * 16, DType::bins), segments = bench.ints(s.segments, 17);
      const View dy = bench.floats(random_floats(s.slots * n, 12), s.slots, n);
      bench.launch(&KernelTable::bias_add, BiasAdd{y, bench.floats(random_floats(s.count * n, 13), s.count, n, DType::bf16), offsets});
      bench.launch(&KernelTable::bias_backward, BiasBackward{{}, bins, false, dy, segments, offsets, row_of});
      bench.launch(&KernelTable::bias_backward, BiasBackward{db, bins, true, dy, segments, offsets, row_of});
      for (const View& v : {y, db}) bench.record(v);
    });
}

}  // namespace
}  // namespace lockstep
