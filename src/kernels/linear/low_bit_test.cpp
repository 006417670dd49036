// A product with a low-bit weight equals the one with the decoded weight, as bits and as expressions: forward and input gradient, plain layers, heads and
// experts, head and embedding. Where rows are rounded, of the rounded rows.
#include "numerics/low_bit.h"
#include "kernels/launch.h"

#include <gtest/gtest.h>

#include "kernels/kernel_test_tools.h"

namespace lockstep {
namespace {

constexpr LowBitFormat kFormats[] = {LowBitFormat::int4, LowBitFormat::fp8, LowBitFormat::mxfp8, LowBitFormat::mxfp4};
// Of linear layers alone, as the next two of rows that are rounded too.
constexpr LowBitFormat kLinearFormats[] = {LowBitFormat::int4, LowBitFormat::fp8, LowBitFormat::mxfp8, LowBitFormat::mxfp4, LowBitFormat::mxfp8_both};
constexpr LowBitFormat kRowFormats[] = {LowBitFormat::fp8, LowBitFormat::mxfp8_both};

struct LowBitCase {
  std::int64_t rows, inputs, outputs, count = 1;
};
const std::vector<LowBitCase> kLowBitShapes = {{1, 32, 16},    {1, 576, 33},  {3, 64, 17},  {2, 1, 1},     {13, 100, 48},
                                               {17, 256, 150}, {50, 290, 40}, {1, 31, 200}, {110, 64, 136}};

// The same weight: encoded, and as the numbers that the forward and the input gradient decode.
struct Pair {
  PackedWeight encoded, plain, across;
};
std::vector<float> image_of(const LowBitCase& s, std::uint64_t seed) {
  const LowBitShape shape{s.outputs, s.inputs};
  std::vector<float> image(static_cast<std::size_t>(s.count * shape.panels() * s.inputs * 16), 0.0f);
  const std::vector<float> w = random_floats(s.count * s.outputs * s.inputs, seed, -0.3, 0.3);
  for (std::int64_t g = 0; g < s.count; ++g)
    for (std::int64_t n = 0; n < s.outputs; ++n)
      for (std::int64_t k = 0; k < s.inputs; ++k)
        image[static_cast<std::size_t>(((g * shape.panels() + n / 16) * s.inputs + k) * 16 + n % 16)] =
            w[static_cast<std::size_t>((g * s.outputs + n) * s.inputs + k)];
  return image;
}
Pair upload_low_bit(KernelBench& b, const LowBitCase& s, LowBitFormat format, std::uint64_t seed = 2, int maximum_leaves = 8) {
  const LowBitShape shape{s.outputs, s.inputs, format};
  const std::vector<float> image = image_of(s, seed);
  const std::int64_t item = shape.panels() * s.inputs * 16;
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(s.count * shape.bytes()));
  std::vector<float> decoded(image.size()), across(image.size());
  for (std::int64_t g = 0; g < s.count; ++g) {
    const std::uint8_t* of_item = bytes.data() + g * shape.bytes();
    encode_panels(image.data() + g * item, shape, bytes.data() + g * shape.bytes(), 0, shape.panels());
    decode_panels(of_item, shape, decoded.data() + g * item);
    if (format == LowBitFormat::mxfp8_both) decode_panels_across(of_item, shape, across.data() + g * item);
    else decode_panels(of_item, shape, across.data() + g * item);
  }
  EXPECT_NE(decoded, image);
  const PackedWeight numbers{{}, s.outputs, s.inputs, s.count, maximum_leaves, 0};
  Pair pair{{{}, s.outputs, s.inputs, s.count, maximum_leaves, static_cast<int>(format)}, numbers, numbers};
  pair.encoded.data = b.zeros(s.count, shape.bytes(), DType::u8);
  b.backend().stream().write(pair.encoded.data, bytes);
  pair.plain.data = b.floats(decoded, 1, static_cast<std::int64_t>(decoded.size()));
  pair.across.data = b.floats(across, 1, static_cast<std::int64_t>(across.size()));
  return pair;
}
// Two views with the same bits, and the same expressions.
void expect_same(KernelBench& b, const View& got, const View& want, const std::string& what) {
  expect_same_words(words_of(b.read(got)), words_of(b.read(want)), what);
  if (b.traced()) expect_same_words(b.backend().stream().read_hashes(got).get(), b.backend().stream().read_hashes(want).get(), what + ", expressions");
  b.record(got);
}

TEST(LowBitLinear, ForwardAndInputGradientAreThoseOfTheDecodedWeight) {
  for (const LowBitFormat format : kLinearFormats)
    for (const LowBitCase& s : kLowBitShapes)
      expect_same_everywhere([&](KernelBench& b) {
        const Pair w = upload_low_bit(b, s, format);
        const View x = b.floats(random_floats(s.rows * s.inputs, 1), s.rows, s.inputs), dy = b.floats(random_floats(s.rows * s.outputs, 3), s.rows, s.outputs);
        const auto forward = [&](const PackedWeight& weight, float scale, bool accumulate, bool round) {
          LinearForward op{b.junk(s.rows, s.outputs), x, weight};
          op.scale = scale;
          op.accumulate = accumulate;
          op.round_input_bf16 = round;
          b.launch(&KernelTable::linear_forward, op);
          return op.y;
        };
        const auto backward = [&](const PackedWeight& weight, float scale, bool accumulate) {
          LinearBackwardInput op{b.junk(s.rows, s.inputs), dy, weight};
          op.scale = scale;
          op.accumulate = accumulate;
          b.launch(&KernelTable::linear_backward_input, op);
          return op.dx;
        };
        const std::string name =
            std::string(low_bit_format_name(format)) + " " + std::to_string(s.rows) + " x " + std::to_string(s.inputs) + " -> " + std::to_string(s.outputs);
        expect_same(b, forward(w.encoded, 1, false, false), forward(w.plain, 1, false, false), name);
        expect_same(b, forward(w.encoded, 0.3f, true, true), forward(w.plain, 0.3f, true, true), name + ", scaled");
        expect_same(b, backward(w.encoded, 1, false), backward(w.across, 1, false), name + ", backward");
        expect_same(b, backward(w.encoded, 0.3f, true), backward(w.across, 0.3f, true), name + ", backward scaled");
      });
}

TEST(LowBitLinear, LeavesOfASumAndTheControl) {
  for (const LowBitFormat format : kFormats) {
    KernelBench b;
    const LowBitCase s{6, 256, 40};
    const Pair w = upload_low_bit(b, s, format), fewer = upload_low_bit(b, s, format, 2, 2), other = upload_low_bit(b, s, format, 5);
    const View x = b.floats(random_floats(s.rows * s.inputs, 1), s.rows, s.inputs);
    const auto forward = [&](const PackedWeight& weight, int begin = 0, int end = 8) {
      LinearForward op{b.junk(s.rows, s.outputs), x, weight};
      op.leaf_begin = begin;
      op.leaf_end = end;
      b.launch(&KernelTable::linear_forward, op);
      return b.read(op.y);
    };
    const std::vector<float> whole = forward(w.encoded), left = forward(w.encoded, 0, 4), right = forward(w.encoded, 4, 8);
    std::vector<float> joined;
    for (std::size_t i = 0; i < whole.size(); ++i) joined.push_back(left[i] + right[i]);
    expect_same_words(words_of(joined), words_of(whole), "halves");
    EXPECT_NE(words_of(forward(fewer.encoded)), words_of(whole)) << "the control: 2 leaves have other bits than 8";
    EXPECT_NE(words_of(forward(other.encoded)), words_of(whole)) << "the control: another weight";
    PackedWeight original = w.plain;
    original.data = b.floats(image_of(s, 2), 1, static_cast<std::int64_t>(image_of(s, 2).size()));
    EXPECT_NE(words_of(forward(original)), words_of(whole)) << "the control: the weight before it was encoded";
  }
}

TEST(LowBitLinear, HeadsAndExperts) {
  for (const LowBitFormat format : kLinearFormats)
    expect_same_everywhere([&](KernelBench& b) {
      const LowBitCase heads{5, 40, 24, 3};
      const Pair h = upload_low_bit(b, heads, format);
      const View hx = b.floats(random_floats(5 * 3 * 44, 1), 5, 3 * 44), hdy = b.floats(random_floats(5 * 3 * 24, 4), 5, 3 * 24);
      const LowBitCase experts{30, 64, 20, 4};
      const Pair e = upload_low_bit(b, experts, format);
      const View offsets = b.ints({0, 17, 17, 19, 30}, 5), ends = b.ints({12, 17, 19, 25}, 4);
      const View ex = b.floats(random_floats(30 * 64, 1), 30, 64), edy = b.floats(random_floats(30 * 20, 4), 30, 20);
      const auto run = [&](const Pair& head, const Pair& expert, bool encoded, const View& ends_or_none) {
        LinearForward hf{b.zeros(5, 3 * 24), hx, encoded ? head.encoded : head.plain, 44, 24};
        LinearBackwardInput hb{b.zeros(5, 3 * 44), hdy, encoded ? head.encoded : head.across, 44, 24};
        LinearForward ef{b.zeros(30, 20), ex, encoded ? expert.encoded : expert.plain, 0, 0, offsets};
        LinearBackwardInput eb{b.zeros(30, 64), edy, encoded ? expert.encoded : expert.across, 0, 0, offsets};
        ef.ends = eb.ends = ends_or_none;
        ef.rows_made = b.zeros(30, 1, DType::i32);
        b.launch(&KernelTable::linear_forward, hf);
        b.launch(&KernelTable::linear_backward_input, hb);
        b.launch(&KernelTable::linear_forward, ef);
        b.launch(&KernelTable::linear_backward_input, eb);
        std::int32_t made = 0;
        for (const std::int32_t n : b.read_ints(ef.rows_made)) made += n;
        EXPECT_EQ(made, ends_or_none ? 12 + 2 + 6 : 30);
        return std::vector<View>{hf.y, hb.dx, ef.y, eb.dx};
      };
      for (const View& ends_or_none : {View{}, ends}) {
        const std::vector<View> got = run(h, e, true, ends_or_none), want = run(h, e, false, ends_or_none);
        for (std::size_t i = 0; i < got.size(); ++i)
          expect_same(b, got[i], want[i], std::string(low_bit_format_name(format)) + ", output " + std::to_string(i));
      }
    });
}

// Rows of `width` numbers each, from columns step, 2 step, ... of a matrix [rows, columns]: what is left of them.
std::vector<float> rounded(std::vector<float> x, std::int64_t columns, std::int64_t step, std::int64_t width, LowBitFormat format) {
  for (std::size_t row = 0; row < x.size(); row += static_cast<std::size_t>(columns))
    for (std::int64_t at = 0; at + width <= columns; at += step) round_row(x.data() + row + at, width, format, x.data() + row + at);
  return x;
}
// The control takes the rounding away again.
void expect_rows(KernelBench& b, const View& got, const View& want, const View& unrounded, const std::string& what) {
  expect_same_words(words_of(b.read(got)), words_of(b.read(want)), what);
  EXPECT_NE(words_of(b.read(unrounded)), words_of(b.read(want))) << what << ", the control: rows as they are";
  b.record(got);
}

TEST(LowBitRows, ProductsAreThoseOfTheRoundedRows) {
  for (const LowBitFormat format : kRowFormats)
    for (const LowBitCase& s : kLowBitShapes) {
      if (s.inputs < 2 || s.outputs < 2) continue;
      const std::vector<float> x = random_floats(s.rows * s.inputs, 1), dy = random_floats(s.rows * s.outputs, 3);
      expect_same_everywhere([&](KernelBench& b) {
        Pair w = upload_low_bit(b, s, format);
        const auto forward = [&](const PackedWeight& weight, const std::vector<float>& from, bool accumulate) {
          LinearForward op{b.floats(random_floats(s.rows * s.outputs, 9), s.rows, s.outputs), b.floats(from, s.rows, s.inputs), weight};
          op.accumulate = accumulate;
          b.launch(&KernelTable::linear_forward, op);
          return op.y;
        };
        const auto backward = [&](const PackedWeight& weight, const std::vector<float>& from) {
          LinearBackwardInput op{b.junk(s.rows, s.inputs), b.floats(from, s.rows, s.outputs), weight};
          b.launch(&KernelTable::linear_backward_input, op);
          return op.dx;
        };
        w.encoded.bits |= kLowBitRows;
        const std::string name =
            std::string(low_bit_format_name(format)) + " " + std::to_string(s.rows) + " x " + std::to_string(s.inputs) + " -> " + std::to_string(s.outputs);
        const std::vector<float> of_x = rounded(x, s.inputs, s.inputs, s.inputs, format), of_dy = rounded(dy, s.outputs, s.outputs, s.outputs, format);
        for (const bool accumulate : {false, true})
          expect_rows(b, forward(w.encoded, x, accumulate), forward(w.plain, of_x, accumulate), forward(w.plain, x, accumulate), name);
        expect_rows(b, backward(w.encoded, dy), backward(w.across, of_dy), backward(w.across, dy), name + ", backward");
      });
    }
}

// Heads have groups of their own in each head's columns; rows of experts are rounded where their slots are.
TEST(LowBitRows, HeadsAndExperts) {
  for (const LowBitFormat format : kRowFormats) {
    const std::vector<float> hx = random_floats(5 * 3 * 44, 1), hdy = random_floats(5 * 3 * 24, 4), ex = random_floats(30 * 264, 1),
                             edy = random_floats(30 * 150, 4);
    const std::vector<float> rhx = rounded(hx, 3 * 44, 44, 40, format), rhdy = rounded(hdy, 3 * 24, 24, 24, format), rex = rounded(ex, 264, 264, 264, format),
                             redy = rounded(edy, 150, 150, 150, format);
    expect_same_everywhere([&](KernelBench& b) {
      Pair h = upload_low_bit(b, {5, 40, 24, 3}, format), e = upload_low_bit(b, {30, 264, 150, 4}, format);
      h.encoded.bits |= kLowBitRows;
      e.encoded.bits |= kLowBitRows;
      const View offsets = b.ints({2, 17, 17, 19, 28}, 5);
      const auto run = [&](const PackedWeight& head, const PackedWeight& head_across, const PackedWeight& expert, const PackedWeight& expert_across,
                           const std::vector<float>& of_hx, const std::vector<float>& of_hdy, const std::vector<float>& of_ex,
                           const std::vector<float>& of_edy) {
        const LinearForward hf{b.zeros(5, 3 * 24), b.floats(of_hx, 5, 3 * 44), head, 44, 24};
        const LinearBackwardInput hb{b.zeros(5, 3 * 44), b.floats(of_hdy, 5, 3 * 24), head_across, 44, 24};
        const LinearForward ef{b.zeros(30, 150), b.floats(of_ex, 30, 264), expert, 0, 0, offsets};
        const LinearBackwardInput eb{b.zeros(30, 264), b.floats(of_edy, 30, 150), expert_across, 0, 0, offsets};
        b.launch(&KernelTable::linear_forward, hf);
        b.launch(&KernelTable::linear_backward_input, hb);
        b.launch(&KernelTable::linear_forward, ef);
        b.launch(&KernelTable::linear_backward_input, eb);
        return std::vector<View>{hf.y, hb.dx, ef.y, eb.dx};
      };
      const std::vector<View> got = run(h.encoded, h.encoded, e.encoded, e.encoded, hx, hdy, ex, edy),
                              want = run(h.plain, h.across, e.plain, e.across, rhx, rhdy, rex, redy),
                              plain = run(h.plain, h.across, e.plain, e.across, hx, hdy, ex, edy);
      for (std::size_t i = 0; i < got.size(); ++i)
        expect_rows(b, got[i], want[i], plain[i], std::string(low_bit_format_name(format)) + ", output " + std::to_string(i));
    });
  }
}

TEST(LowBitEmbedding, RowsAreThoseOfTheDecodedTable) {
  for (const LowBitFormat format : kFormats)
    expect_same_everywhere([&](KernelBench& b) {
      const Pair w = upload_low_bit(b, {1, 100, 150}, format);
      const View token = b.ints({149, 0, 17, 17, 130}, 5);
      const auto rows = [&](const PackedWeight& table) {
        EmbeddingForward op{b.junk(5, 100), table.data, token, true, table.bits, 150};
        b.launch(&KernelTable::embedding_forward, op);
        return op.y;
      };
      expect_same(b, rows(w.encoded), rows(w.plain), low_bit_format_name(format));
    });
}

TEST(LowBitHead, LogitsLossGradientAndEmbedding) {
  for (const LowBitFormat format : kFormats)
    expect_same_everywhere([&](KernelBench& b) {
      const LowBitCase s{5, 96, 150};
      const Pair w = upload_low_bit(b, s, format);
      const View x = b.floats(random_floats(5 * 96, 1), 5, 96), index = b.ints({4, 0, 3}, 3), target = b.ints({149, 0, -1, 77, 16}, 5),
                 token = b.ints({149, 0, 17, 17}, 4);
      const auto run = [&](const PackedWeight& weight) {
        HeadLogits logits{b.junk(3, 150), x, index, weight};
        b.launch(&KernelTable::head_logits, logits);
        HeadLoss loss;
        loss.logprob = b.junk(5, 1);
        loss.x = x;
        loss.w = weight;
        loss.target = target;
        loss.flags = b.ints({0, 0, 0, 0, 0}, 5);
        loss.objective.kind = LossKind::cross_entropy;
        loss.objective.weight = b.floats({0.2f, 0.2f, 0.2f, 0.2f, 0.2f}, 5, 1);
        loss.loss = b.junk(5, 1);
        loss.dx = b.junk(5, 96);
        loss.log_sum = b.junk(5, 1);
        loss.slope = b.junk(5, 1);
        loss.logits_chunk = b.zeros(3, 150);
        b.launch(&KernelTable::head_loss, loss);
        EmbeddingForward embedding{b.junk(4, 96), weight.data, token, true, weight.bits, 150};
        b.launch(&KernelTable::embedding_forward, embedding);
        return std::vector<View>{logits.y, loss.logprob, loss.loss, loss.dx, embedding.y};
      };
      const std::vector<View> got = run(w.encoded), want = run(w.plain);
      for (std::size_t i = 0; i < got.size(); ++i) expect_same(b, got[i], want[i], std::string(low_bit_format_name(format)) + ", output " + std::to_string(i));
    });
}

}  // namespace
}  // namespace lockstep
