// Linear kernels: the same bits and expressions on every instruction set and backend, for every option of a call.
#include <gtest/gtest.h>

#include "kernels/launch.h"
#include "kernels/linear/linear_test_tools.h"

namespace lockstep {
namespace {
using namespace linear_test;

TEST(Linear, TheSameEverywhere) {
  const std::vector<Shape> shapes = {{1, 64, 17},    {15, 128, 33}, {29, 256, 40},    {33, 31, 48},   {7, 64, 20, 3},
                                     {100, 64, 160}, {3, 600, 20},  {140, 75, 18, 2}, {13, 5152, 17}, {13, 20, 4112}};
  for (const Shape& s : shapes)
    for (DType dtype : {DType::f32, DType::bf16}) {
      SCOPED_TRACE(s.name());
      const auto x = random_floats(s.rows * s.count * s.inputs, 22), w = random_floats(s.count * s.outputs * s.inputs, 23);
      const auto dy = random_floats(s.rows * s.count * s.outputs, 24);
      expect_same_everywhere([&](KernelBench& b) {
        const LinearForward forward = forward_of(b, s, x, w, dtype);
        b.launch(&KernelTable::linear_forward, forward);
        b.record(forward.y);
        LinearForward rounded = forward;
        rounded.round_input_bf16 = true;
        rounded.y = b.junk(s.rows, s.count * s.outputs);
        b.launch(&KernelTable::linear_forward, rounded);
        b.record(rounded.y);
        LinearBackwardInput input;
        input.dx = b.junk(s.rows, s.count * s.inputs);
        input.dy = b.floats(dy, s.rows, s.count * s.outputs);
        input.w = forward.w;
        input.x_step = s.inputs;
        input.y_step = s.outputs;
        b.launch(&KernelTable::linear_backward_input, input);
        b.record(input.dx);
        input.accumulate = true;
        b.launch(&KernelTable::linear_backward_input, input);
        b.record(input.dx);
        const LinearBackwardWeight weight = weight_of(b, s, dy, x, segments_of(s.rows, 6));
        b.launch(&KernelTable::linear_backward_weight, weight);
        b.record(weight.gradient);
      });
    }
}

// What one device alone reads of experts (rows they get, rows of one adapter, segments of rows that came from elsewhere), shares of a sum,
// and places inside wider matrices.
TEST(Linear, ExpertsSharesAndStridesAreTheSameEverywhere) {
  struct Experts {
    Shape shape;
    std::vector<std::int32_t> offsets, ends;  // ends: of one adapter, or none
  };
  const std::vector<Experts> cases = {{{31, 96, 40, 6}, {0, 0, 13, 13, 14, 31, 31}, {}},
                                      {{31, 40, 24, 3}, {2, 14, 20}, {9, 14, 31}},
                                      {{300, 64, 130, 3}, {0, 130, 131, 300}, {}},
                                      {{120, 33, 18, 4}, {5, 20, 90, 120}, {17, 20, 119, 120}},
                                      {{8, 64, 20, 16}, {0, 0, 0, 1, 1, 2, 2, 2, 2, 4, 4, 4, 5, 5, 5, 7, 7}, {}}};
  for (const auto& [s, offsets, ends] : cases)
    for (DType dtype : {DType::f32, DType::bf16})
      expect_same_everywhere([&](KernelBench& b) {
        const auto x = random_floats(s.rows * s.inputs, 35), w = random_floats(s.count * s.outputs * s.inputs, 36), dy = random_floats(s.rows * s.outputs, 37);
        std::vector<std::int32_t> row_of;
        for (std::int32_t i = 0; i < s.rows; ++i) row_of.push_back(i / 2);
        LinearForward forward{
            b.junk(s.rows, s.outputs), b.floats(x, s.rows, s.inputs), upload(b, w, s, dtype), 0, 0, b.ints(offsets, static_cast<std::int64_t>(offsets.size()))};
        if (!ends.empty()) forward.ends = b.ints(ends, s.count);
        forward.rows_made = b.zeros(s.rows, 1, DType::i32);
        std::vector<std::int32_t> made(static_cast<std::size_t>(s.rows));
        for (std::size_t g = 0; g < static_cast<std::size_t>(s.count); ++g)
          for (std::int32_t t = offsets[g]; t < (ends.empty() ? offsets[g + 1] : ends[g]); ++t) made[static_cast<std::size_t>(t)] = 1;
        b.launch(&KernelTable::linear_forward, forward);
        LinearBackwardInput input{b.junk(s.rows, s.inputs), b.floats(dy, s.rows, s.outputs), forward.w, 0, 0, forward.offsets, false, forward.ends};
        b.launch(&KernelTable::linear_backward_input, input);
        LinearBackwardWeight weight{b.junk(1, s.count * forward.w.packed_size()), {}, true, input.dy, forward.x, forward.w, 0, 0, forward.offsets};
        weight.segment = b.ints(segments_of(s.rows, 3), s.rows);
        weight.row_of = b.ints(row_of, s.rows);
        weight.ends = forward.ends;
        b.launch(&KernelTable::linear_backward_weight, weight);
        EXPECT_EQ(b.read_ints(forward.rows_made), made);
        for (const View& v : {forward.y, input.dx, weight.gradient, forward.rows_made}) b.record(v);
      });
  for (const Shape& s : {Shape{5, 256, 33}, Shape{1, 512, 40}, Shape{70, 256, 140}, Shape{3, 33, 17}, Shape{14, 5152, 18}})
    expect_same_everywhere([&](KernelBench& b) {
      const View wide_x = b.floats(random_floats(s.rows * (s.inputs + 7), 38), s.rows, s.inputs + 7), wide_y = b.junk(s.rows, s.outputs + 5);
      LinearForward op;
      op.x = wide_x.column_range(3, s.inputs);
      op.y = wide_y.column_range(2, s.outputs);
      for (const int maximum : {8, 2, 16}) {
        op.w = upload(b, random_floats(s.outputs * s.inputs, 39), s, DType::bf16, maximum);
        for (const auto& [begin, end] : {std::pair{0, 8}, std::pair{0, 3}, std::pair{1, 2}, std::pair{2, 7}, std::pair{5, 5}, std::pair{0, 16}}) {
          op.leaf_begin = begin, op.leaf_end = end;
          b.launch(&KernelTable::linear_forward, op);
          b.record(wide_y);
        }
      }
    });
}

// Products of infinities and NaN, of numbers that vanish, and the padding that a gradient of rows with them has.
TEST(Linear, SpecialNumbersAreTheSameEverywhere) {
  for (const Shape& s : {Shape{3, 64, 20}, Shape{70, 64, 140}})
    expect_same_everywhere([&](KernelBench& b) {
      auto x = random_floats(s.rows * s.inputs, 40), w = random_floats(s.outputs * s.inputs, 41), dy = random_floats(s.rows * s.outputs, 42);
      const std::vector<float> special = {INFINITY, -INFINITY, std::nanf(""), -0.0f, 0.0f, 1e-40f, -1e-30f, 3e38f};
      for (auto* v : {&x, &w, &dy})
        for (std::size_t i = 0; i < special.size(); ++i) (*v)[(i * 37 + v->size() / 3) % v->size()] = special[i];
      const LinearForward forward = forward_of(b, s, x, w, DType::f32);
      b.launch(&KernelTable::linear_forward, forward);
      LinearBackwardInput input{b.junk(s.rows, s.inputs), b.floats(dy, s.rows, s.outputs), forward.w};
      b.launch(&KernelTable::linear_backward_input, input);
      const LinearBackwardWeight weight = weight_of(b, s, dy, x, segments_of(s.rows, 2));
      b.launch(&KernelTable::linear_backward_weight, weight);
      for (const View& v : {forward.y, input.dx, weight.gradient}) b.record(v);
    });
}

}  // namespace
}  // namespace lockstep
