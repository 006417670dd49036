// The loss of values: numbers and derivatives against double, corners, the same bits everywhere, rows alone.
#include <cmath>
#include <limits>

#include "kernels/kernel_test_tools.h"
#include "kernels/launch.h"

namespace lockstep {
namespace {

struct ValueRows {
  std::int64_t rows = 70;
  std::vector<float> value = random_floats(rows, 1), returned = random_floats(rows, 2), old = random_floats(rows, 3), weight = random_floats(rows, 4);
  std::vector<std::int32_t> target = std::vector<std::int32_t>(static_cast<std::size_t>(rows), 5);
  ValueRows() {
    for (float& w : weight) w = std::fabs(w) + 0.1f;
    for (std::size_t i = 0; i < target.size(); i += 7) target[i] = -1;
    weight[1] = 0;
    weight[2] = -0.5f;
  }
};

struct ValueOut {
  View value, loss, slope, marks, flags;
};
ValueOut launch_values(KernelBench& bench, const ValueRows& r, ValueLoss::Kind kind, float clip) {
  ValueOut out{bench.floats(r.value, r.rows, 1), bench.junk(r.rows, 1), bench.junk(r.rows, 1),
               bench.ints(std::vector<std::int32_t>(r.target.size(), 9), r.rows), bench.ints(std::vector<std::int32_t>(r.target.size(), 0), r.rows)};
  bench.launch(&KernelTable::value_loss,
               ValueLoss{out.value, out.loss, out.slope, out.marks, out.flags, bench.ints(r.target, r.rows), kind, bench.floats(r.weight, r.rows, 1),
                         bench.floats(r.returned, r.rows, 1), bench.floats(r.old, r.rows, 1), clip});
  return out;
}

// As the formula of docs/losses.md says it.
double plain_value_loss(const ValueRows& r, std::size_t i, double v, float clip) {
  if (r.target[i] < 0) return 0;
  const double returned = r.returned[i], old = r.old[i], held = clip > 0 ? std::min(std::max(v, old - clip), old + clip) : v;
  return r.weight[i] * 0.5 * std::max((v - returned) * (v - returned), (held - returned) * (held - returned));
}

TEST(ValueLoss, IsTheFormulaAndItsDerivative) {
  const ValueRows r;
  for (const float clip : {0.0f, 0.2f}) {
    KernelBench bench;
    const ValueOut out = launch_values(bench, r, ValueLoss::Kind::square, clip);
    const std::vector<float> value = bench.read(out.value), loss = bench.read(out.loss), slope = bench.read(out.slope);
    int held = 0;
    for (std::size_t i = 0; i < r.target.size(); ++i) {
      const double v = r.value[i], step = 1e-5;
      EXPECT_EQ(value[i], r.target[i] < 0 ? 0.0f : r.value[i]);
      EXPECT_NEAR(loss[i], plain_value_loss(r, i, v, clip), 1e-6) << i;
      EXPECT_NEAR(slope[i], (plain_value_loss(r, i, v + step, clip) - plain_value_loss(r, i, v - step, clip)) / (2 * step), 1e-5) << i;
      held += r.target[i] >= 0 && r.weight[i] != 0 && slope[i] == 0;
    }
    EXPECT_EQ(held > 5, clip > 0) << held;
  }
}

TEST(ValueLoss, LinearWeighsValues) {
  const ValueRows r;
  KernelBench bench;
  const ValueOut out = launch_values(bench, r, ValueLoss::Kind::linear, 0);
  const std::vector<float> loss = bench.read(out.loss), slope = bench.read(out.slope);
  for (std::size_t i = 0; i < r.target.size(); ++i) {
    const float want = r.target[i] < 0 || r.weight[i] == 0 ? 0.0f : 0.0f - r.weight[i];
    EXPECT_EQ(slope[i], want);
    EXPECT_EQ(loss[i], want * (r.target[i] < 0 ? 0.0f : r.value[i]));
  }
}

TEST(ValueLoss, WithoutALossValuesAlone) {
  const ValueRows r;
  KernelBench bench;
  const View value = bench.floats(r.value, r.rows, 1);
  bench.launch(&KernelTable::value_loss, ValueLoss{.value = value, .target = bench.ints(r.target, r.rows)});
  const std::vector<float> got = bench.read(value);
  for (std::size_t i = 0; i < r.target.size(); ++i) EXPECT_EQ(got[i], r.target[i] < 0 ? 0.0f : r.value[i]);
}

// A value that is no number flags its own row, and no row that is not scored.
TEST(ValueLoss, FlagsItsOwnRow) {
  ValueRows r;
  r.value[3] = std::numeric_limits<float>::quiet_NaN();
  r.value[4] = std::numeric_limits<float>::infinity();
  r.value[7] = std::numeric_limits<float>::quiet_NaN();  // not scored
  KernelBench bench;
  const ValueOut out = launch_values(bench, r, ValueLoss::Kind::square, 0.2f);
  const std::vector<std::int32_t> flags = bench.read_ints(out.flags);
  for (std::size_t i = 0; i < r.target.size(); ++i) EXPECT_EQ(flags[i], i == 3 || i == 4 ? 4 : 0) << i;
}

TEST(ValueLoss, BitsAndHashesAreTheSameEverywhere) {
  const ValueRows r;
  for (const float clip : {0.0f, 0.2f})
    expect_same_everywhere([&](KernelBench& bench) {
      const ValueOut out = launch_values(bench, r, ValueLoss::Kind::square, clip);
      for (const View& v : {out.value, out.loss, out.slope}) bench.record(v);
    });
}

TEST(ValueLoss, RowsAreIndependent) {
  const ValueRows r;
  KernelBench bench;
  const std::vector<float> whole = bench.read(launch_values(bench, r, ValueLoss::Kind::square, 0.2f).slope);
  ValueRows some = r;
  some.rows = 9;
  for (std::vector<float>* v : {&some.value, &some.returned, &some.old, &some.weight}) *v = std::vector<float>(v->begin() + 20, v->begin() + 29);
  some.target = std::vector<std::int32_t>(r.target.begin() + 20, r.target.begin() + 29);
  const std::vector<float> part = bench.read(launch_values(bench, some, ValueLoss::Kind::square, 0.2f).slope);
  expect_same_words(words_of(part), words_of(std::vector<float>(whole.begin() + 20, whole.begin() + 29)), "slope");
}

}  // namespace
}  // namespace lockstep
