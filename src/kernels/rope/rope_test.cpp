#include "kernels/rope/rope.h"
#include "kernels/launch.h"

#include <cmath>

#include "kernels/kernel_test_tools.h"

namespace lockstep {
namespace {

// A table of random angles, and the rotation in double.
struct RopeProblem {
  int T, heads, rotary, pass, x_offset, x_step, y_offset, y_step, positions = 40;
  bool half;
  std::vector<float> table, x;
  std::vector<std::int32_t> position;

  RopeProblem(int t, int h, int r, int p, int xo, int xs, int yo, int ys, bool halves = false)
      : T(t), heads(h), rotary(r), pass(p), x_offset(xo), x_step(xs), y_offset(yo), y_step(ys), half(halves) {
    table.resize(std::size_t(positions) * rotary);
    const std::vector<float> angles = random_floats(positions * rotary / 2, 1, -3, 3);
    for (int at = 0; at < positions; ++at)
      for (int i = 0; i < rotary / 2; ++i) {
        table[at * rotary + cosine(i)] = std::cos(angles[at * rotary / 2 + i]);
        table[at * rotary + sine(i)] = std::sin(angles[at * rotary / 2 + i]);
      }
    x = random_floats(std::int64_t{T} * x_columns(), 2);
    position = random_ints(T, 3, positions);
  }
  // Where angle i stands in the table, and its pair in a head.
  int cosine(int i) const { return half ? i : 2 * i; }
  int sine(int i) const { return half ? rotary / 2 + i : 2 * i + 1; }
  int x_columns() const { return x_offset + std::max(heads * x_step, rotary + pass); }
  int y_columns() const { return y_offset + std::max(heads * y_step, rotary + pass); }
  Rope op(KernelBench& b, const View& y, const View& from, bool inverse) const {
    return {y, from, heads, rotary, pass, x_offset, x_step, y_offset, y_step, b.floats(table, positions, rotary), b.ints(position, T), inverse, half};
  }
  std::vector<double> want(bool inverse) const {
    std::vector<double> y(std::size_t(T) * y_columns(), 12345.0);
    for (int t = 0; t < T; ++t)
      for (int h = 0; h < heads; ++h) {
        const float* from = &x[std::size_t(t) * x_columns() + x_offset + h * x_step];
        double* to = &y[std::size_t(t) * y_columns() + y_offset + h * y_step];
        for (int i = 0; i < rotary / 2; ++i) {
          const int a = cosine(i), b = sine(i);  // the pair stands as its cosine and sine do
          const double c = table[position[t] * rotary + a], s = (inverse ? -1.0 : 1.0) * table[position[t] * rotary + b];
          to[a] = from[a] * c - from[b] * s;
          to[b] = from[b] * c + from[a] * s;
        }
        for (int i = rotary; i < rotary + pass; ++i) to[i] = from[i];
      }
    return y;
  }
};

std::vector<RopeProblem> problems() {
  return {{1, 1, 2, 0, 0, 2, 0, 2},           {15, 3, 8, 0, 12, 20, 24, 32},      {33, 16, 8, 8, 0, 16, 0, 16},    {70, 1, 32, 1, 17, 33, 3, 40},
          {15, 3, 64, 0, 0, 64, 0, 64, true}, {33, 2, 22, 5, 3, 30, 9, 40, true}, {17, 4, 2, 0, 0, 2, 0, 2, true}, {9, 1, 0, 37, 4, 0, 11, 0, true}};
}

TEST(Rope, RotatesAndLeavesTheRest) {
  for (const RopeProblem& p : problems())
    for (bool inverse : {false, true}) {
      KernelBench b;
      const View y = b.junk(p.T, p.y_columns());
      b.launch(&KernelTable::rope, p.op(b, y, b.floats(p.x, p.T, p.x_columns()), inverse));
      const std::vector<float> got = b.read(y);
      const std::vector<double> want = p.want(inverse);
      for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], 1e-6) << i;
    }
}

// The backward is the transposed rotation: <y, R x> = <R^-1 y, x>.
TEST(Rope, InverseIsTheAdjoint) {
  for (const RopeProblem& p : {RopeProblem(9, 2, 8, 4, 0, 12, 0, 12), RopeProblem(9, 2, 8, 4, 0, 12, 0, 12, true)}) {
    KernelBench b;
    const std::vector<float> dy = random_floats(std::int64_t(p.x.size()), 8);
    const View y = b.junk(p.T, 24), dx = b.junk(p.T, 24);
    b.launch(&KernelTable::rope, p.op(b, y, b.floats(p.x, p.T, 24), false));
    b.launch(&KernelTable::rope, p.op(b, dx, b.floats(dy, p.T, 24), true));
    const std::vector<float> ys = b.read(y), dxs = b.read(dx);
    double left = 0, right = 0;
    for (std::size_t i = 0; i < dy.size(); ++i) left += double(dy[i]) * ys[i], right += double(dxs[i]) * p.x[i];
    EXPECT_NEAR(left, right, 1e-5);
  }
}

TEST(Rope, InPlaceHasTheSameBits) {
  for (const RopeProblem& p : {RopeProblem(33, 4, 8, 5, 7, 20, 7, 20), RopeProblem(33, 4, 36, 5, 7, 41, 7, 41, true)}) {
    KernelBench b;
    const View y = b.floats(p.x, p.T, p.x_columns()), x = b.floats(p.x, p.T, p.x_columns());
    b.launch(&KernelTable::rope, p.op(b, y, x, false));
    b.launch(&KernelTable::rope, p.op(b, x, x, false));
    expect_same_words(words_of(b.read(x)), words_of(b.read(y)), "in place");
  }
}

TEST(Rope, SameEverywhereAndRowByRow) {
  for (const RopeProblem& p : problems())
    for (bool inverse : {false, true}) {
      expect_same_everywhere([&](KernelBench& b) {
        const View y = b.junk(p.T, p.y_columns());
        b.launch(&KernelTable::rope, p.op(b, y, b.floats(p.x, p.T, p.x_columns()), inverse));
        b.record(y);
        if (p.x_offset != p.y_offset || p.x_step != p.y_step) return;
        const View both = b.floats(p.x, p.T, p.x_columns());
        b.launch(&KernelTable::rope, p.op(b, both, both, inverse));
        b.record(both);
      });
      KernelBench b;
      const View y = b.junk(p.T, p.y_columns()), alone = b.junk(p.T, p.y_columns());
      Rope op = p.op(b, y, b.floats(p.x, p.T, p.x_columns()), inverse);
      b.launch(&KernelTable::rope, op);
      const Rope all = op;
      for (int t = 0; t < p.T; ++t) {
        op.y = alone.row_range(t, 1), op.x = all.x.row_range(t, 1), op.position = all.position.row_range(t, 1);
        b.launch(&KernelTable::rope, op);
      }
      expect_same_words(words_of(b.read(alone)), words_of(b.read(y)), "rows alone");
    }
}

}  // namespace
}  // namespace lockstep
