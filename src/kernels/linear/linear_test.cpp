// Linear kernels: bits against a naive implementation of the order, values against double, and invariance of the bits.
#include "kernels/linear/linear.h"
#include "kernels/launch.h"

#include <gtest/gtest.h>

#include "kernels/linear/linear_test_tools.h"
#include "numerics/form.h"

namespace lockstep {
namespace {
using namespace linear_test;

// chain(G) as docs/numerics.md writes it.
template <class A, class B>
float chain(std::int64_t n, int maximum_leaves, const A& a, const B& b) {
  const int leaves = leaf_count(n, maximum_leaves);
  std::vector<float> leaf(static_cast<std::size_t>(leaves), 0.0f);
  for (std::int64_t i = 0; i < n; ++i) {
    float& sum = leaf[static_cast<std::size_t>(i / (n / leaves))];
    sum = std::fma(a(i), b(i), sum);
  }
  while (leaf.size() > 1) {
    std::vector<float> joined;
    for (std::size_t i = 0; i < leaf.size(); i += 2) joined.push_back(leaf[i] + leaf[i + 1]);
    leaf = joined;
  }
  return leaf[0];
}

// One item per head side by side (x_step = K, y_step = N), or one.
std::vector<float> forward_by_hand(const std::vector<float>& x, const std::vector<float>& w, const Shape& s, int maximum_leaves = 8) {
  std::vector<float> y;
  for (std::int64_t t = 0; t < s.rows; ++t)
    for (std::int64_t g = 0; g < s.count; ++g)
      for (std::int64_t n = 0; n < s.outputs; ++n)
        y.push_back(chain(
            s.inputs, maximum_leaves, [&](std::int64_t k) { return x[(t * s.count + g) * s.inputs + k]; },
            [&](std::int64_t k) { return w[(g * s.outputs + n) * s.inputs + k]; }));
  return y;
}
std::vector<float> input_by_hand(const std::vector<float>& dy, const std::vector<float>& w, const Shape& s) {
  std::vector<float> dx;
  for (std::int64_t t = 0; t < s.rows; ++t)
    for (std::int64_t g = 0; g < s.count; ++g)
      for (std::int64_t k = 0; k < s.inputs; ++k)
        dx.push_back(chain(
            s.outputs, 8, [&](std::int64_t n) { return dy[(t * s.count + g) * s.outputs + n]; },
            [&](std::int64_t n) { return w[(g * s.outputs + n) * s.inputs + k]; }));
  return dx;
}
// Chains of segments in fp32, their sum exact (128-bit) and rounded once.
std::vector<float> weight_by_hand(const std::vector<float>& dy, const std::vector<float>& x, const std::vector<std::int32_t>& segment, const Shape& s) {
  std::vector<float> dw;
  for (std::int64_t g = 0; g < s.count; ++g)
    for (std::int64_t n = 0; n < s.outputs; ++n)
      for (std::int64_t k = 0; k < s.inputs; ++k) {
        __float128 total = 0;
        for (std::int64_t t = 0; t < s.rows;) {
          float sum = 0;
          const std::int32_t at = segment[t];
          for (; t < s.rows && segment[t] == at; ++t) sum = std::fma(x[(t * s.count + g) * s.inputs + k], dy[(t * s.count + g) * s.outputs + n], sum);
          total += sum;
        }
        dw.push_back(static_cast<float>(total));
      }
  return dw;
}
void expect_bits(const std::vector<float>& got, const std::vector<float>& want, const std::string& what) {
  expect_same_words(words_of(got), words_of(want), what);
}

const std::vector<Shape> kLinearShapes = {{1, 1, 1},      {2, 3, 17},     {1, 33, 15},     {5, 64, 16},       {3, 15, 33},    {12, 128, 48},
                                          {13, 256, 64},  {40, 96, 97},   {17, 300, 31},   {7, 31, 300},      {24, 257, 130}, {39, 256, 256},
                                          {6, 64, 32, 3}, {9, 17, 33, 5}, {14, 96, 20, 4}, {25, 288, 160, 2}, {8, 512, 16},   {4, 16, 512}};

TEST(Linear, ForwardHasTheBitsOfTheWrittenOrder) {
  for (const Shape& s : kLinearShapes)
    for (DType dtype : {DType::f32, DType::bf16})
      for (InstructionSet isa : {InstructionSet::scalar, widest_instruction_set()}) {
        KernelBench b({.isa = isa, .threads = 2});
        const auto x = random_floats(s.rows * s.count * s.inputs, 1), w = random_floats(s.count * s.outputs * s.inputs, 2);
        const LinearForward op = forward_of(b, s, x, w, dtype);
        b.launch(&KernelTable::linear_forward, op);
        const std::vector<float> y = b.read(op.y), want = forward_by_hand(x, stored(w, dtype), s);
        expect_bits(y, want, s.name());
        std::vector<double> exact;
        const auto wide = stored(w, dtype);
        for (std::int64_t t = 0; t < s.rows; ++t)
          for (std::int64_t g = 0; g < s.count; ++g)
            for (std::int64_t n = 0; n < s.outputs; ++n) {
              double sum = 0;
              for (std::int64_t k = 0; k < s.inputs; ++k)
                sum += static_cast<double>(x[(t * s.count + g) * s.inputs + k]) * wide[(g * s.outputs + n) * s.inputs + k];
              exact.push_back(sum);
            }
        expect_close(y, exact, 1e-5, s.name());
      }
}

TEST(Linear, InputGradientHasTheBitsOfTheWrittenOrder) {
  for (const Shape& s : kLinearShapes)
    for (DType dtype : {DType::f32, DType::bf16})
      for (bool accumulate : {false, true}) {
        KernelBench b({.isa = std::nullopt, .threads = 2});
        const auto dy = random_floats(s.rows * s.count * s.outputs, 3), w = random_floats(s.count * s.outputs * s.inputs, 4);
        const auto before = random_floats(s.rows * s.count * s.inputs, 5);
        LinearBackwardInput op;
        op.dx = b.floats(before, s.rows, s.count * s.inputs);
        op.dy = b.floats(dy, s.rows, s.count * s.outputs);
        op.w = upload(b, w, s, dtype);
        op.x_step = s.inputs;
        op.y_step = s.outputs;
        op.accumulate = accumulate;
        b.launch(&KernelTable::linear_backward_input, op);
        std::vector<float> want = input_by_hand(dy, stored(w, dtype), s);
        if (accumulate)
          for (std::size_t i = 0; i < want.size(); ++i) want[i] = before[i] + want[i];
        expect_bits(b.read(op.dx), want, s.name());
      }
}

// Sums that are made in parts (kernels/linear/long_product.h): parts of whole leaves, parts inside a leaf, and one leaf alone.
TEST(Linear, LongSumsHaveTheBitsOfTheWrittenOrder) {
  for (const Shape& s : {Shape{13, 4128, 19}, Shape{27, 11008, 5}, Shape{14, 4099, 33}, Shape{100, 2080, 9}, Shape{1, 4128, 3}}) {
    const auto x = random_floats(s.rows * s.inputs, 1), w = random_floats(s.outputs * s.inputs, 2);
    const Shape transposed{s.rows, s.outputs, s.inputs};
    const auto dy = random_floats(s.rows * s.inputs, 3), wide = random_floats(s.inputs * s.outputs, 4);
    const auto wanted = input_by_hand(dy, wide, transposed);
    for (InstructionSet isa : {InstructionSet::scalar, InstructionSet::avx2, widest_instruction_set()}) {
      SCOPED_TRACE(s.name() + " " + std::string(instruction_set_name(isa)));
      for (DType dtype : {DType::f32, DType::bf16}) {
        KernelBench b({.isa = isa, .threads = 2});
        const LinearForward op = forward_of(b, s, x, w, dtype);
        b.launch(&KernelTable::linear_forward, op);
        expect_bits(b.read(op.y), forward_by_hand(x, stored(w, dtype), s), "y");
      }
      KernelBench b({.isa = isa, .threads = 2});
      LinearBackwardInput input;
      input.dx = b.junk(s.rows, s.outputs);
      input.dy = b.floats(dy, s.rows, s.inputs);
      input.w = upload(b, wide, transposed, DType::f32);
      b.launch(&KernelTable::linear_backward_input, input);
      expect_bits(b.read(input.dx), wanted, "dx");
    }
  }
}

TEST(Linear, WeightGradientHasTheBitsOfTheWrittenOrder) {
  for (const Shape& s : kLinearShapes)
    for (std::int64_t length : {1, 4, 100}) {
      KernelBench b({.isa = std::nullopt, .threads = 2});
      const auto dy = random_floats(s.rows * s.count * s.outputs, 6), x = random_floats(s.rows * s.count * s.inputs, 7);
      const auto segment = segments_of(s.rows, length);
      const LinearBackwardWeight op = weight_of(b, s, dy, x, segment);
      b.launch(&KernelTable::linear_backward_weight, op);
      const std::vector<float> packed = b.read(op.gradient);
      const std::vector<float> dw = unpack(packed, s.outputs, s.inputs, s.count);
      expect_bits(dw, weight_by_hand(dy, x, segment, s), s.name());
      expect_bits(packed, pack(dw, s.outputs, s.inputs, s.count), "padding of " + s.name());
    }
}

TEST(Linear, RandomShapesHaveTheBitsOfTheWrittenOrder) {
  RandomSequence random(31, RandomStream::fuzz);
  for (int i = 0; i < 60; ++i) {
    const Shape s{1 + random.below(40), 1 + random.below(300), 1 + random.below(300)};
    const DType dtype = i % 2 ? DType::bf16 : DType::f32;
    const std::vector<InstructionSet> sets = {InstructionSet::scalar, InstructionSet::avx2, widest_instruction_set()};
    KernelBench b({.isa = sets[static_cast<std::size_t>(i) % 3], .threads = 1 + i % 2});
    const auto x = random_floats(s.rows * s.inputs, 32), w = random_floats(s.outputs * s.inputs, 33), dy = random_floats(s.rows * s.outputs, 34);
    const auto segment = segments_of(s.rows, 1 + random.below(20));
    const LinearForward forward = forward_of(b, s, x, w, dtype);
    b.launch(&KernelTable::linear_forward, forward);
    expect_bits(b.read(forward.y), forward_by_hand(x, stored(w, dtype), s), "y of " + s.name());
    LinearBackwardInput input;
    input.dx = b.junk(s.rows, s.inputs);
    input.dy = b.floats(dy, s.rows, s.outputs);
    input.w = forward.w;
    b.launch(&KernelTable::linear_backward_input, input);
    expect_bits(b.read(input.dx), input_by_hand(dy, stored(w, dtype), s), "dx of " + s.name());
    const LinearBackwardWeight weight = weight_of(b, s, dy, x, segment);
    b.launch(&KernelTable::linear_backward_weight, weight);
    expect_bits(unpack(b.read(weight.gradient), s.outputs, s.inputs, 1), weight_by_hand(dy, x, segment, s), "dw of " + s.name());
  }
}

TEST(Linear, ManySegmentsAreCarriedInTime) {
  const Shape s{1000, 5, 3};
  KernelBench b;
  const auto dy = random_floats(s.rows * s.outputs, 8, 0.5, 1000.0), x = random_floats(s.rows * s.inputs, 9, 0.5, 1000.0);
  const auto segment = segments_of(s.rows, 1);
  const LinearBackwardWeight op = weight_of(b, s, dy, x, segment);
  b.launch(&KernelTable::linear_backward_weight, op);
  expect_bits(unpack(b.read(op.gradient), s.outputs, s.inputs, 1), weight_by_hand(dy, x, segment, s), s.name());
}

// Rows in several blocks, inputs in several items, several groups of panels and a single one behind them.
TEST(Linear, GradientsOfLongBatchesHaveTheBitsOfTheWrittenOrder) {
  for (const InstructionSet isa : {InstructionSet::avx2, widest_instruction_set()})
    for (const std::int64_t length : {9, 500}) {
      const Shape s{2300, 16 * 6 + 3, 157};
      KernelBench b({.isa = isa, .threads = 2});
      const auto dy = random_floats(s.rows * s.outputs, 41), x = random_floats(s.rows * s.inputs, 42);
      const auto segment = segments_of(s.rows, length);
      const LinearBackwardWeight op = weight_of(b, s, dy, x, segment);
      b.launch(&KernelTable::linear_backward_weight, op);
      expect_bits(unpack(b.read(op.gradient), s.outputs, s.inputs, 1), weight_by_hand(dy, x, segment, s), s.name());
    }
}

// Small sums are deposited a shorter way (numerics/small_deposits.h), a tile at a time, but not into bins that persist. An output that is large, infinite
// or not a number takes the other way beside them.
TEST(Linear, SmallGradientsHaveTheBitsOfThoseInBins) {
  for (const InstructionSet isa : {InstructionSet::scalar, InstructionSet::avx2, widest_instruction_set()})
    for (const std::int64_t length : {1, 9, 300})
      for (const float large : {0.0f, 0.5f, INFINITY, NAN}) {
        const Shape s{length == 1 ? 16 : 301, 100, 16 * 6 + 3};
        KernelBench b({.isa = isa, .threads = 2});
        auto dy = random_floats(s.rows * s.outputs, 43), x = random_floats(s.rows * s.inputs, 44);
        for (std::size_t i = 0; i < dy.size(); ++i) dy[i] *= i % 7 == 0 ? 0x1p-70f : i % 5 == 0 ? 0.0f : 0x1p-14f;
        if (large != 0) dy[17] = large;
        LinearBackwardWeight op = weight_of(b, s, dy, x, segments_of(s.rows, length));
        b.launch(&KernelTable::linear_backward_weight, op);
        const std::vector<float> alone = b.read(op.gradient);
        op.gradient = b.junk(op.w.panels(), s.inputs * 16);
        op.bins = b.zeros(1, op.w.packed_size(), DType::bins);
        b.launch(&KernelTable::linear_backward_weight, op);
        expect_bits(alone, b.read(op.gradient), s.name());
      }
}

// A weight too large to be transposed whole is transposed a part at a time (kernels/linear/transposed_product.h).
TEST(Linear, InputGradientsOfLargeWeightsHaveTheBitsOfTheWrittenOrder) {
  const Shape s{14, 530, 8192};
  const auto dy = random_floats(s.rows * s.outputs, 45), w = random_floats(s.outputs * s.inputs, 46), before = random_floats(s.rows * s.inputs, 47);
  for (DType dtype : {DType::f32, DType::bf16}) {
    std::vector<float> want = input_by_hand(dy, stored(w, dtype), s);
    for (std::size_t i = 0; i < want.size(); ++i) want[i] = before[i] + want[i];
    for (InstructionSet isa : {InstructionSet::scalar, InstructionSet::avx2, widest_instruction_set()}) {
      KernelBench b({.isa = isa, .threads = 2});
      LinearBackwardInput op;
      op.dx = b.floats(before, s.rows, s.inputs);
      op.dy = b.floats(dy, s.rows, s.outputs);
      op.w = upload(b, w, s, dtype);
      op.accumulate = true;
      b.launch(&KernelTable::linear_backward_input, op);
      expect_bits(b.read(op.dx), want, std::string(instruction_set_name(isa)));
    }
  }
}

TEST(Linear, AdjointsMatchFiniteDifferences) {
  const Shape s{3, 5, 18};
  const auto x = random_floats(s.rows * s.inputs, 10), w = random_floats(s.outputs * s.inputs, 11), dy = random_floats(s.rows * s.outputs, 12);
  const auto loss = [&](const std::vector<double>& xs, const std::vector<double>& ws) {
    double sum = 0;
    for (std::int64_t t = 0; t < s.rows; ++t)
      for (std::int64_t n = 0; n < s.outputs; ++n)
        for (std::int64_t k = 0; k < s.inputs; ++k) sum += dy[t * s.outputs + n] * xs[t * s.inputs + k] * ws[n * s.inputs + k];
    return sum;
  };
  KernelBench b;
  LinearBackwardInput input;
  input.dx = b.junk(s.rows, s.inputs);
  input.dy = b.floats(dy, s.rows, s.outputs);
  input.w = upload(b, w, s, DType::f32);
  b.launch(&KernelTable::linear_backward_input, input);
  expect_close(b.read(input.dx), finite_difference([&](const std::vector<double>& v) { return loss(v, widened(w)); }, widened(x)), 1e-5, "dx");
  const LinearBackwardWeight weight = weight_of(b, s, dy, x, segments_of(s.rows, 2));
  b.launch(&KernelTable::linear_backward_weight, weight);
  expect_close(unpack(b.read(weight.gradient), s.outputs, s.inputs, 1),
               finite_difference([&](const std::vector<double>& v) { return loss(widened(x), v); }, widened(w)), 1e-5, "dw");
}

// scale multiplies a finished sum once; with accumulate the product is then added to what stood there, both ways of a product.
TEST(Linear, ScaledSumsAreAddedToWhatStands) {
  for (const Shape& s : {Shape{5, 64, 33}, Shape{13, 4, 160}, Shape{9, 17, 33, 5}})
    for (const bool accumulate : {false, true}) {
      const auto x = random_floats(s.rows * s.count * s.inputs, 1), w = random_floats(s.count * s.outputs * s.inputs, 2);
      const auto dy = random_floats(s.rows * s.count * s.outputs, 3);
      const float scale = 0.3f;
      const auto expected = [&](std::vector<float> sums, const std::vector<float>& before) {
        for (std::size_t i = 0; i < sums.size(); ++i) {
          sums[i] *= scale;
          if (accumulate) sums[i] = before[i] + sums[i];
        }
        return sums;
      };
      const auto want_y = expected(forward_by_hand(x, w, s), dy), want_dx = expected(input_by_hand(dy, w, s), x);
      expect_same_everywhere([&](KernelBench& b) {
        LinearForward forward = forward_of(b, s, x, w, DType::f32);
        forward.y = b.floats(dy, s.rows, s.count * s.outputs);
        forward.scale = scale;
        forward.accumulate = accumulate;
        b.launch(&KernelTable::linear_forward, forward);
        expect_bits(b.read(forward.y), want_y, s.name());
        LinearBackwardInput input{b.floats(x, s.rows, s.count * s.inputs), b.floats(dy, s.rows, s.count * s.outputs), forward.w, s.inputs, s.outputs};
        input.scale = scale;
        input.accumulate = accumulate;
        b.launch(&KernelTable::linear_backward_input, input);
        expect_bits(b.read(input.dx), want_dx, s.name());
        b.record(forward.y);
        b.record(input.dx);
      });
    }
}

// Of an expert's rows those up to `ends`: the others stay as they are, and give no gradient.
TEST(Linear, ExpertsMayEndEarly) {
  const Shape s{31, 40, 24, 3};
  const std::vector<std::int32_t> begins = {2, 14, 20}, ends = {9, 14, 31};
  const auto x = random_floats(s.rows * s.inputs, 1), w = random_floats(s.count * s.outputs * s.inputs, 2), dy = random_floats(s.rows * s.outputs, 3);
  KernelBench b;
  LinearForward forward{b.junk(s.rows, s.outputs), b.floats(x, s.rows, s.inputs), upload(b, w, s, DType::f32), 0, 0, b.ints(begins, s.count)};
  forward.ends = b.ints(ends, s.count);
  b.launch(&KernelTable::linear_forward, forward);
  LinearBackwardInput input{b.junk(s.rows, s.inputs), b.floats(dy, s.rows, s.outputs), forward.w, 0, 0, forward.offsets};
  input.ends = forward.ends;
  b.launch(&KernelTable::linear_backward_input, input);
  LinearBackwardWeight weight;
  weight.gradient = b.junk(1, s.count * forward.w.packed_size());
  weight.dy = input.dy;
  weight.x = forward.x;
  weight.w = forward.w;
  weight.offsets = forward.offsets;
  weight.ends = forward.ends;
  weight.segment = b.ints(segments_of(s.rows, 4), s.rows);
  b.launch(&KernelTable::linear_backward_weight, weight);
  const std::vector<float> y = b.read(forward.y), dx = b.read(input.dx), dw = unpack(b.read(weight.gradient), s.outputs, s.inputs, s.count);
  std::vector<float> want_y(y.size(), 12345.0f), want_dx(dx.size(), 12345.0f), want_dw;
  for (std::int64_t g = 0; g < s.count; ++g) {
    const Shape part{ends[static_cast<std::size_t>(g)] - begins[static_cast<std::size_t>(g)], s.inputs, s.outputs};
    const auto rows_of = [&](const std::vector<float>& v, std::int64_t n) {
      return std::vector<float>(v.begin() + begins[static_cast<std::size_t>(g)] * n, v.begin() + ends[static_cast<std::size_t>(g)] * n);
    };
    const std::vector<float> own(w.begin() + g * s.outputs * s.inputs, w.begin() + (g + 1) * s.outputs * s.inputs);
    const auto all = segments_of(s.rows, 4);
    const std::vector<std::int32_t> segment(all.begin() + begins[static_cast<std::size_t>(g)], all.begin() + ends[static_cast<std::size_t>(g)]);
    const auto part_y = forward_by_hand(rows_of(x, s.inputs), own, part), part_dx = input_by_hand(rows_of(dy, s.outputs), own, part),
               part_dw = weight_by_hand(rows_of(dy, s.outputs), rows_of(x, s.inputs), segment, part);
    std::copy(part_y.begin(), part_y.end(), want_y.begin() + begins[static_cast<std::size_t>(g)] * s.outputs);
    std::copy(part_dx.begin(), part_dx.end(), want_dx.begin() + begins[static_cast<std::size_t>(g)] * s.inputs);
    want_dw.insert(want_dw.end(), part_dw.begin(), part_dw.end());
  }
  expect_bits(y, want_y, "y");
  expect_bits(dx, want_dx, "dx");
  expect_bits(dw, want_dw, "dw");
}

// Experts: rows of item g are offsets[g] .. offsets[g+1]; some experts get none.
TEST(Linear, ExpertsUseTheirOwnRows) {
  const std::vector<std::int32_t> offsets = {0, 0, 13, 13, 14, 31, 31};
  const Shape s{31, 96, 40, 6};
  for (DType dtype : {DType::f32, DType::bf16}) {
    KernelBench b({.isa = std::nullopt, .threads = 2});
    const auto x = random_floats(s.rows * s.inputs, 13), w = random_floats(s.count * s.outputs * s.inputs, 14);
    const auto dy = random_floats(s.rows * s.outputs, 15);
    const auto wide = stored(w, dtype);
    // Row i came from row i / 2 of the batch, whose segments are three rows long.
    std::vector<std::int32_t> row_of, expert_segment;
    for (std::int32_t i = 0; i < s.rows; ++i) row_of.push_back(i / 2);
    const auto segment = segments_of(16, 3);
    for (std::int32_t r : row_of) expert_segment.push_back(segment[static_cast<std::size_t>(r)]);

    LinearForward forward;
    forward.y = b.junk(s.rows, s.outputs);
    forward.x = b.floats(x, s.rows, s.inputs);
    forward.w = upload(b, w, s, dtype);
    forward.offsets = b.ints(offsets, s.count + 1);
    b.launch(&KernelTable::linear_forward, forward);
    LinearBackwardInput input;
    input.dx = b.junk(s.rows, s.inputs);
    input.dy = b.floats(dy, s.rows, s.outputs);
    input.w = forward.w;
    input.offsets = forward.offsets;
    b.launch(&KernelTable::linear_backward_input, input);
    LinearBackwardWeight weight;
    weight.gradient = b.junk(s.count * forward.w.panels(), s.inputs * 16);
    weight.dy = input.dy;
    weight.x = forward.x;
    weight.w = forward.w;
    weight.offsets = forward.offsets;
    weight.segment = b.ints(segment, 16);
    weight.row_of = b.ints(row_of, s.rows);
    b.launch(&KernelTable::linear_backward_weight, weight);

    std::vector<float> y, dx, dw;
    for (std::int64_t g = 0; g < s.count; ++g) {
      const std::int64_t begin = offsets[static_cast<std::size_t>(g)], end = offsets[static_cast<std::size_t>(g) + 1];
      const Shape one{end - begin, s.inputs, s.outputs};
      const std::vector<float> part(wide.begin() + g * s.outputs * s.inputs, wide.begin() + (g + 1) * s.outputs * s.inputs);
      const std::vector<float> xs(x.begin() + begin * s.inputs, x.begin() + end * s.inputs);
      const std::vector<float> dys(dy.begin() + begin * s.outputs, dy.begin() + end * s.outputs);
      const std::vector<std::int32_t> segments(expert_segment.begin() + begin, expert_segment.begin() + end);
      for (float v : forward_by_hand(xs, part, one)) y.push_back(v);
      for (float v : input_by_hand(dys, part, one)) dx.push_back(v);
      for (float v : weight_by_hand(dys, xs, segments, one)) dw.push_back(v);
    }
    expect_bits(b.read(forward.y), y, "y");
    expect_bits(b.read(input.dx), dx, "dx");
    expect_bits(unpack(b.read(weight.gradient), s.outputs, s.inputs, s.count), dw, "dw");
  }
}

TEST(Linear, LeafRangesJoinToTheWhole) {
  for (std::int64_t inputs : {64, 128, 256, 512}) {
    const Shape s{15, inputs, 33};
    KernelBench b({.isa = std::nullopt, .threads = 2});
    const auto x = random_floats(s.rows * s.inputs, 16), w = random_floats(s.outputs * s.inputs, 17);
    LinearForward op = forward_of(b, s, x, w, DType::bf16);
    b.launch(&KernelTable::linear_forward, op);
    const std::vector<float> whole = b.read(op.y);
    const int leaves = leaf_count(inputs);
    const auto part = [&](int begin, int end) {
      op.leaf_begin = begin;
      op.leaf_end = end;
      op.y = b.junk(s.rows, s.outputs);
      b.launch(&KernelTable::linear_forward, op);
      return b.read(op.y);
    };
    std::vector<float> joined = part(0, leaves / 2);
    const std::vector<float> right = part(leaves / 2, 8);
    for (std::size_t i = 0; i < joined.size(); ++i) joined[i] += right[i];
    expect_bits(joined, whole, "two halves, K " + std::to_string(inputs));
    // Every rank its leaf; the joins are the tree's.
    std::vector<std::vector<float>> single;
    for (int leaf = 0; leaf < leaves; ++leaf) single.push_back(part(leaf, leaf + 1));
    for (std::size_t i = 0; i < whole.size(); ++i) {
      float values[8];
      for (int leaf = 0; leaf < leaves; ++leaf) values[leaf] = single[static_cast<std::size_t>(leaf)][i];
      joined[i] = join_pairwise(values, leaves);
    }
    expect_bits(joined, whole, "single leaves, K " + std::to_string(inputs));
    expect_bits(part(leaves, 8), std::vector<float>(whole.size(), 0.0f), "no leaves");
    if (leaves < 4) continue;
    const std::vector<float> three = part(1, 4);
    for (std::size_t i = 0; i < whole.size(); ++i) joined[i] = (single[1][i] + single[2][i]) + single[3][i];
    expect_bits(three, joined, "three leaves");
  }
}

// Another leaf count is another contract: its bits differ, so a test that should see it can.
TEST(Linear, AnotherLeafCountIsSeen) {
  const Shape s{20, 256, 64};
  KernelBench b;
  const auto x = random_floats(s.rows * s.inputs, 18), w = random_floats(s.outputs * s.inputs, 19);
  LinearForward op = forward_of(b, s, x, w, DType::f32);
  b.launch(&KernelTable::linear_forward, op);
  const std::vector<float> eight = b.read(op.y);
  op.w.maximum_leaves = 2;
  b.launch(&KernelTable::linear_forward, op);
  const std::vector<float> two = b.read(op.y);
  expect_bits(two, forward_by_hand(x, w, s, 2), "two leaves");
  std::size_t different = 0;
  for (std::size_t i = 0; i < two.size(); ++i) different += float_bits(two[i]) != float_bits(eight[i]);
  EXPECT_GT(different, two.size() / 4);
}

// Segments may come in several calls, in any order; only the last call finishes.
TEST(Linear, BinsPersistBetweenCalls) {
  const Shape s{40, 33, 35, 2};
  const auto dy = random_floats(s.rows * s.count * s.outputs, 20, -30.0, 30.0), x = random_floats(s.rows * s.count * s.inputs, 21, -1e-3, 50.0);
  const auto segment = segments_of(s.rows, 4);
  expect_same_everywhere([&](KernelBench& b) {
    LinearBackwardWeight op = weight_of(b, s, dy, x, segment);
    b.launch(&KernelTable::linear_backward_weight, op);
    const std::vector<float> once = b.read(op.gradient);
    b.record(op.gradient);
    const LinearBackwardWeight all = op;
    op.bins = b.zeros(1, s.count * op.w.packed_size(), DType::bins);
    const std::vector<std::vector<std::int64_t>> orders = {{0, 12, 20}, {20, 0, 12}, {12, 20, 0}};
    for (const auto& order : orders) {
      op.gradient = b.junk(s.count * op.w.panels(), s.inputs * 16);
      for (std::size_t i = 0; i < order.size(); ++i) {
        const std::int64_t begin = order[i], count = begin == 0 ? 12 : begin == 12 ? 8 : 20;
        op.dy = all.dy.row_range(begin, count);
        op.x = all.x.row_range(begin, count);
        op.segment = all.segment.row_range(begin, count);
        op.finish = i + 1 == order.size();
        b.launch(&KernelTable::linear_backward_weight, op);
        if (!op.finish) {
          EXPECT_EQ(b.read(op.gradient)[0], 12345.0f) << "an unfinished gradient was written";
        }
      }
      // Finishing empties the bins, so the next order starts afresh.
      expect_bits(b.read(op.gradient), once, "order that begins at row " + std::to_string(order[0]));
      b.record(op.gradient);
    }
    // A call without rows finishes what others deposited.
    op.finish = false;
    op.dy = all.dy, op.x = all.x, op.segment = all.segment;
    b.launch(&KernelTable::linear_backward_weight, op);
    op.finish = true;
    op.dy = all.dy.row_range(0, 0), op.x = all.x.row_range(0, 0), op.segment = all.segment.row_range(0, 0);
    b.launch(&KernelTable::linear_backward_weight, op);
    expect_bits(b.read(op.gradient), once, "finish without rows");
  });
}

TEST(Linear, RoundedInputIsTheRoundedRow) {
  const Shape s{50, 96, 33, 2};
  KernelBench b({.isa = std::nullopt, .threads = 2});
  const auto x = random_floats(s.rows * s.count * s.inputs, 25), w = random_floats(s.count * s.outputs * s.inputs, 26);
  LinearForward op = forward_of(b, s, x, w, DType::bf16);
  op.round_input_bf16 = true;
  b.launch(&KernelTable::linear_forward, op);
  expect_bits(b.read(op.y), forward_by_hand(stored(x, DType::bf16), stored(w, DType::bf16), s), "rounded");
}

// A row's bits are its own, alone or among others, in every register tile; other columns of a wider matrix are not touched.
TEST(Linear, RowsAreIndependent) {
  for (InstructionSet isa : {InstructionSet::scalar, InstructionSet::avx2, InstructionSet::avx512}) {
    if (!machine_has(isa)) continue;
    const Shape s{40, 128, 50};
    KernelBench b({.isa = isa, .threads = 2});
    const auto x = random_floats(s.rows * s.inputs, 27), w = random_floats(s.outputs * s.inputs, 28), dy = random_floats(s.rows * s.outputs, 29);
    LinearForward forward = forward_of(b, s, x, w, DType::bf16);
    b.launch(&KernelTable::linear_forward, forward);
    const std::vector<float> y = b.read(forward.y);
    LinearBackwardInput input;
    input.dx = b.junk(s.rows, s.inputs);
    input.dy = b.floats(dy, s.rows, s.outputs);
    input.w = forward.w;
    b.launch(&KernelTable::linear_backward_input, input);
    const std::vector<float> dx = b.read(input.dx);
    const View all_x = forward.x, all_dy = input.dy;
    for (std::int64_t rows = 1; rows <= s.rows; ++rows) {
      const std::int64_t begin = s.rows - rows;
      const View wide_y = b.junk(rows, s.outputs + 3), wide_dx = b.junk(rows, s.inputs + 5);
      forward.x = all_x.row_range(begin, rows);
      forward.y = wide_y.column_range(2, s.outputs);
      b.launch(&KernelTable::linear_forward, forward);
      input.dy = all_dy.row_range(begin, rows);
      input.dx = wide_dx.column_range(0, s.inputs);
      b.launch(&KernelTable::linear_backward_input, input);
      expect_bits(b.read(forward.y), {y.begin() + begin * s.outputs, y.end()}, "y of " + std::to_string(rows));
      expect_bits(b.read(input.dx), {dx.begin() + begin * s.inputs, dx.end()}, "dx of " + std::to_string(rows));
      for (float v : b.read(wide_y.column_range(s.outputs + 2, 1))) EXPECT_EQ(v, 12345.0f);
      for (float v : b.read(wide_y.column_range(0, 2))) EXPECT_EQ(v, 12345.0f);
      for (float v : b.read(wide_dx.column_range(s.inputs, 5))) EXPECT_EQ(v, 12345.0f);
    }
  }
}

TEST(Linear, NoRows) {
  const Shape s{0, 20, 20};
  KernelBench b({.isa = std::nullopt, .threads = 2});
  const LinearForward forward = forward_of(b, s, {}, random_floats(400, 30), DType::f32);
  b.launch(&KernelTable::linear_forward, forward);
  LinearBackwardInput input;
  input.dx = forward.x;
  input.dy = forward.y;
  input.w = forward.w;
  b.launch(&KernelTable::linear_backward_input, input);
  const LinearBackwardWeight weight = weight_of(b, s, {}, {}, {});
  b.launch(&KernelTable::linear_backward_weight, weight);
  for (float v : b.read(weight.gradient)) EXPECT_EQ(float_bits(v), 0u);
}

}  // namespace
}  // namespace lockstep
