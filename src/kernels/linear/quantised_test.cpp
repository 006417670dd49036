// Products with integer weights: quantiser and product bit by bit against a direct implementation of their definitions, values against
// double, and invariance of the bits.
#include "numerics/quantised.h"
#include "kernels/launch.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/kernel_test_tools.h"

namespace lockstep {
namespace {

struct QuantisedCase {
  std::int64_t rows, inputs, outputs, count = 1;
  int bits = 8;
  std::string name() const {
    return std::to_string(rows) + " x " + std::to_string(inputs) + " -> " + std::to_string(outputs) + " x " + std::to_string(count) + ", " +
           std::to_string(bits) + " bits";
  }
};

// A group as docs/numerics.md writes it, in the way of a reader: bf16 by its own rounding, ties to even.
struct Group {
  std::vector<int> q;
  float scale;
};
Group group_of(const std::vector<float>& x, int limit, bool round_scale) {
  float largest = 0;
  for (float v : x) largest = std::max(largest, std::fabs(v));
  float scale = largest / static_cast<float>(limit);
  if (round_scale) scale = widen(round_to_bf16(scale));
  Group g{std::vector<int>(x.size(), 0), scale};
  if (scale < std::ldexp(1.0f, -110)) g.scale = 0;
  else
    for (std::size_t i = 0; i < x.size(); ++i) g.q[i] = static_cast<int>(std::nearbyint(x[i] * (1.0f / scale)));
  return g;
}
std::vector<Group> groups_of(const float* x, std::int64_t n, int limit, bool round_scale) {
  std::vector<Group> groups;
  for (std::int64_t begin = 0; begin < n; begin += 32) groups.push_back(group_of({x + begin, x + std::min(n, begin + 32)}, limit, round_scale));
  return groups;
}
// The product of a row of x and a row of w.
float product_of(const std::vector<Group>& x, const std::vector<Group>& w, std::int64_t inputs, int maximum_leaves) {
  std::size_t leaves = static_cast<std::size_t>(maximum_leaves);
  while (leaves > 1 && inputs % static_cast<std::int64_t>(32 * leaves) != 0) leaves /= 2;
  std::vector<float> leaf(leaves, 0.0f);
  for (std::size_t g = 0; g < x.size(); ++g) {
    std::int64_t sum = 0;
    for (std::size_t i = 0; i < x[g].q.size(); ++i) sum += x[g].q[i] * w[g].q[i];
    float& chain = leaf[g / (x.size() / leaves)];
    chain = std::fma(static_cast<float>(sum), x[g].scale * w[g].scale, chain);
  }
  for (; leaves > 1; leaves /= 2)
    for (std::size_t i = 0; i < leaves / 2; ++i) leaf[i] = leaf[2 * i] + leaf[2 * i + 1];
  return leaf[0];
}

std::vector<float> packed(const std::vector<float>& w, std::int64_t outputs, std::int64_t inputs) {
  std::vector<float> image(static_cast<std::size_t>((outputs + 15) / 16 * inputs * 16), 0.0f);
  for (std::int64_t n = 0; n < outputs; ++n)
    for (std::int64_t k = 0; k < inputs; ++k)
      image[static_cast<std::size_t>((n / 16 * inputs + k) * 16 + n % 16)] = w[static_cast<std::size_t>(n * inputs + k)];
  return image;
}
std::vector<std::uint8_t> quantised(const std::vector<float>& w, const QuantisedCase& s) {
  const QuantisedShape shape{s.outputs, s.inputs, s.bits};
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(s.count * shape.bytes()));
  for (std::int64_t g = 0; g < s.count; ++g) {
    const auto begin = w.begin() + g * s.outputs * s.inputs;
    quantise_panels(packed({begin, begin + s.outputs * s.inputs}, s.outputs, s.inputs).data(), shape, bytes.data() + g * shape.bytes(), 0, shape.panels());
  }
  return bytes;
}
PackedWeight upload_quantised(KernelBench& b, const std::vector<float>& w, const QuantisedCase& s, int maximum_leaves = 8) {
  PackedWeight weight{{}, s.outputs, s.inputs, s.count, maximum_leaves, s.bits};
  weight.data = b.zeros(s.count, weight.quantised().bytes(), DType::u8);
  b.backend().stream().write(weight.data, quantised(w, s));
  return weight;
}
std::vector<float> forward(const std::vector<float>& x, const std::vector<float>& w, const QuantisedCase& s, int maximum_leaves = 8, int leaf_begin = 0,
                           int leaf_end = 8) {
  KernelBench b;
  const View y = b.junk(s.rows, s.outputs);
  LinearForward op{y, b.floats(x, s.rows, s.inputs), upload_quantised(b, w, s, maximum_leaves)};
  op.leaf_begin = leaf_begin;
  op.leaf_end = leaf_end;
  b.launch(&KernelTable::linear_forward, op);
  return b.read(y);
}

const std::vector<QuantisedCase> kQuantisedShapes = {{1, 32, 16},   {1, 576, 33}, {3, 64, 17},    {5, 33, 15},  {2, 1, 1},     {13, 100, 48},
                                                     {17, 256, 64}, {33, 96, 80}, {50, 1536, 40}, {1, 31, 200}, {8, 128, 129}, {4, 15, 16}};

TEST(QuantisedWeights, AreThoseOfTheDefinitionAndTheWayBackIsExact) {
  for (int bits : {8, 4})
    for (const QuantisedCase& shape : kQuantisedShapes) {
      QuantisedCase s = shape;
      s.bits = bits;
      const std::vector<float> w = random_floats(s.outputs * s.inputs, 7, -3, 3), image = packed(w, s.outputs, s.inputs);
      const QuantisedShape q{s.outputs, s.inputs, bits};
      const std::vector<std::uint8_t> bytes = quantised(w, s);
      std::vector<float> back(image.size());
      dequantise_panels(bytes.data(), q, back.data());
      std::vector<float> want(w.size());
      for (std::int64_t n = 0; n < s.outputs; ++n) {
        const std::vector<Group> groups = groups_of(w.data() + n * s.inputs, s.inputs, bits == 8 ? 127 : 7, true);
        for (std::int64_t k = 0; k < s.inputs; ++k) {
          const Group& g = groups[static_cast<std::size_t>(k / 32)];
          const int value = g.q[static_cast<std::size_t>(k % 32)];
          EXPECT_LE(std::abs(value), bits == 8 ? 127 : 7);
          EXPECT_LE(std::fabs(static_cast<float>(value) * g.scale - w[static_cast<std::size_t>(n * s.inputs + k)]), g.scale * 0.7f);
          want[static_cast<std::size_t>(n * s.inputs + k)] = static_cast<float>(value) * g.scale;
        }
      }
      expect_same_words(words_of(back), words_of(packed(want, s.outputs, s.inputs)), s.name());
      std::vector<std::uint8_t> again(bytes.size());
      quantise_panels(back.data(), q, again.data(), 0, q.panels());
      EXPECT_EQ(again, bytes) << s.name();
    }
}

TEST(QuantisedWeights, ZerosTinyNumbersAndNaN) {
  for (int bits : {8, 4}) {
    std::int8_t q[4];
    const float zero[4] = {0, -0.0f, 0x1p-130f, -0x1p-120f};
    EXPECT_EQ(float_bits(quantise_group(zero, 1, 4, bits, q)), 0u);
    EXPECT_EQ(q[3], 0);
    for (float bad : {std::nanf(""), INFINITY, -INFINITY}) {
      const float x[4] = {1, bad, 2, 3};
      EXPECT_TRUE(std::isnan(quantise_group(x, 1, 4, bits, q)));
      EXPECT_EQ(q[0], 0);
    }
    const float large[4] = {std::numeric_limits<float>::max(), -1e38f, 0, 1};
    EXPECT_TRUE(std::isfinite(quantise_group(large, 1, 4, bits, q)));
    EXPECT_EQ(q[0], bits == 8 ? 127 : 7);
  }
}

TEST(QuantisedLinear, BitsAreThoseOfTheWrittenOrderAndValuesThoseOfDouble) {
  for (int bits : {8, 4})
    for (const QuantisedCase& shape : kQuantisedShapes) {
      QuantisedCase s = shape;
      s.bits = bits;
      const std::vector<float> x = random_floats(s.rows * s.inputs, 1), w = random_floats(s.outputs * s.inputs, 2);
      std::vector<float> want;
      std::vector<double> exact;
      for (std::int64_t t = 0; t < s.rows; ++t)
        for (std::int64_t n = 0; n < s.outputs; ++n) {
          const auto xs = groups_of(x.data() + t * s.inputs, s.inputs, 127, false),
                     ws = groups_of(w.data() + n * s.inputs, s.inputs, bits == 8 ? 127 : 7, true);
          want.push_back(product_of(xs, ws, s.inputs, 8));
          double sum = 0;
          for (std::size_t g = 0; g < xs.size(); ++g)
            for (std::size_t i = 0; i < xs[g].q.size(); ++i)
              sum += static_cast<double>(xs[g].q[i]) * static_cast<double>(xs[g].scale) * ws[g].q[i] * static_cast<double>(ws[g].scale);
          exact.push_back(sum);
        }
      const std::vector<float> got = forward(x, w, s);
      expect_same_words(words_of(got), words_of(want), s.name());
      expect_close(got, exact, 1e-6, s.name());
    }
}

// What saturates or overflows in a product of bytes: all at the limits, in all signs.
TEST(QuantisedLinear, LimitsAreExact) {
  for (int bits : {8, 4})
    for (InstructionSet isa : {InstructionSet::scalar, InstructionSet::avx2, InstructionSet::avx512}) {
      if (!machine_has(isa)) continue;
      const QuantisedCase s{4, 64, 16, 1, bits};
      const int limit = bits == 8 ? 127 : 7;
      std::vector<float> x, w;
      for (int t = 0; t < 4; ++t)
        for (int k = 0; k < 64; ++k) x.push_back(t == 0 ? 127.0f : t == 1 ? -127.0f : t == 2 ? (k % 2 ? 127.0f : -127.0f) : (k / 2 % 2 ? 127.0f : -127.0f));
      for (int n = 0; n < 16; ++n)
        for (int k = 0; k < 64; ++k)
          w.push_back(static_cast<float>(limit) * (n % 4 == 0 ? 1.0f : n % 4 == 1 ? -1.0f : n % 4 == 2 ? (k % 2 ? 1.0f : -1.0f) : (k / 2 % 2 ? 1.0f : -1.0f)));
      KernelBench b({.isa = isa});
      const View y = b.junk(4, 16);
      b.launch(&KernelTable::linear_forward, LinearForward{y, b.floats(x, 4, 64), upload_quantised(b, w, s)});
      const std::vector<float> got = b.read(y);
      for (std::size_t t = 0; t < 4; ++t)
        for (std::size_t n = 0; n < 16; ++n) {
          double want = 0;
          for (std::size_t k = 0; k < 64; ++k) want += static_cast<double>(x[t * 64 + k]) * static_cast<double>(w[n * 64 + k]);
          EXPECT_EQ(got[t * 16 + n], want) << "row " << t << ", output " << n << ", " << bits << " bits, " << instruction_set_name(isa);
        }
    }
}

TEST(QuantisedLinear, SameEverywhere) {
  for (int bits : {8, 4})
    for (const QuantisedCase& shape : kQuantisedShapes) {
      QuantisedCase s = shape;
      s.bits = bits;
      s.rows = std::min<std::int64_t>(s.rows, 20);
      s.inputs = std::min<std::int64_t>(s.inputs, 256);
      expect_same_everywhere([&](KernelBench& b) {
        const View y = b.junk(s.rows, s.outputs);
        b.launch(&KernelTable::linear_forward, LinearForward{y, b.floats(random_floats(s.rows * s.inputs, 1), s.rows, s.inputs),
                                                             upload_quantised(b, random_floats(s.outputs * s.inputs, 2), s)});
        b.record(y);
      });
    }
}

TEST(QuantisedLinear, HeadsReadTheirOwnColumns) {
  for (int bits : {8, 4}) {
    const QuantisedCase s{5, 40, 24, 3, bits};
    const std::int64_t step = 44;
    const std::vector<float> x = random_floats(s.rows * s.count * step, 1), w = random_floats(s.count * s.outputs * s.inputs, 2);
    expect_same_everywhere([&](KernelBench& b) {
      const View y = b.junk(s.rows, s.count * s.outputs);
      LinearForward op{y, b.floats(x, s.rows, s.count * step), upload_quantised(b, w, s)};
      op.x_step = step;
      op.y_step = s.outputs;
      b.launch(&KernelTable::linear_forward, op);
      b.record(y);
      const std::vector<float> got = b.read(y);
      for (std::int64_t g = 0; g < s.count; ++g)
        for (std::int64_t t = 0; t < s.rows; ++t)
          for (std::int64_t n = 0; n < s.outputs; ++n)
            ASSERT_EQ(got[static_cast<std::size_t>((t * s.count + g) * s.outputs + n)],
                      product_of(groups_of(x.data() + t * s.count * step + g * step, s.inputs, 127, false),
                                 groups_of(w.data() + (g * s.outputs + n) * s.inputs, s.inputs, bits == 8 ? 127 : 7, true), s.inputs, 8));
    });
  }
}

TEST(QuantisedLinear, ExpertsTakeTheirRows) {
  for (int bits : {8, 4}) {
    const QuantisedCase s{30, 64, 20, 4, bits};
    const std::vector<std::int32_t> offsets = {0, 17, 17, 19, 30};
    const std::vector<float> x = random_floats(s.rows * s.inputs, 1), w = random_floats(s.count * s.outputs * s.inputs, 2);
    expect_same_everywhere([&](KernelBench& b) {
      const View y = b.junk(s.rows, s.outputs);
      LinearForward op{y, b.floats(x, s.rows, s.inputs), upload_quantised(b, w, s)};
      op.offsets = b.ints(offsets, 5);
      op.rows_made = b.zeros(s.rows, 1, DType::i32);
      b.launch(&KernelTable::linear_forward, op);
      EXPECT_EQ(b.read_ints(op.rows_made), std::vector<std::int32_t>(30, 1));
      b.record(y);
      const std::vector<float> got = b.read(y);
      for (std::int64_t g = 0; g < s.count; ++g)
        for (std::int64_t t = offsets[static_cast<std::size_t>(g)]; t < offsets[static_cast<std::size_t>(g) + 1]; ++t)
          for (std::int64_t n = 0; n < s.outputs; ++n)
            ASSERT_EQ(got[static_cast<std::size_t>(t * s.outputs + n)],
                      product_of(groups_of(x.data() + t * s.inputs, s.inputs, 127, false),
                                 groups_of(w.data() + (g * s.outputs + n) * s.inputs, s.inputs, bits == 8 ? 127 : 7, true), s.inputs, 8));
    });
  }
}

TEST(QuantisedLinear, ARowAloneHasItsBitsAndANanStaysInItsRow) {
  for (int bits : {8, 4}) {
    const QuantisedCase s{37, 160, 50, 1, bits};
    std::vector<float> x = random_floats(s.rows * s.inputs, 1);
    const std::vector<float> w = random_floats(s.outputs * s.inputs, 2);
    x[static_cast<std::size_t>(9 * s.inputs + 33)] = std::nanf("");
    x[static_cast<std::size_t>(20 * s.inputs + 150)] = -INFINITY;
    const std::vector<float> all = forward(x, w, s);
    for (std::int64_t t = 0; t < s.rows; ++t) {
      QuantisedCase one = s;
      one.rows = 1;
      const std::vector<float> alone = forward({x.begin() + t * s.inputs, x.begin() + (t + 1) * s.inputs}, w, one);
      for (std::int64_t n = 0; n < s.outputs; ++n) {
        const float got = all[static_cast<std::size_t>(t * s.outputs + n)];
        EXPECT_EQ(std::isnan(got), t == 9 || t == 20) << t;
        if (t != 9 && t != 20) {
          ASSERT_EQ(float_bits(got), float_bits(alone[static_cast<std::size_t>(n)])) << t << ", " << n;
        }
      }
    }
  }
}

TEST(QuantisedLinear, LeavesJoinToTheWholeAndAnotherCountIsSeen) {
  for (int bits : {8, 4}) {
    const QuantisedCase s{6, 256, 40, 1, bits};
    const std::vector<float> x = random_floats(s.rows * s.inputs, 1), w = random_floats(s.outputs * s.inputs, 2);
    const std::vector<float> whole = forward(x, w, s), left = forward(x, w, s, 8, 0, 4), right = forward(x, w, s, 8, 4, 8), none = forward(x, w, s, 8, 3, 3);
    std::vector<float> joined;
    for (std::size_t i = 0; i < whole.size(); ++i) joined.push_back(left[i] + right[i]);
    expect_same_words(words_of(joined), words_of(whole), "halves");
    for (float v : none) EXPECT_EQ(float_bits(v), 0u);
    EXPECT_NE(words_of(forward(x, w, s, 2)), words_of(whole)) << "the negative control: 2 leaves have other bits than 8";
  }
}

// Leaf ranges, rows with a NaN or an infinity, rows of zeros and limits.
TEST(QuantisedLinear, SharesAndSpecialRowsAreTheSameEverywhere) {
  for (int bits : {8, 4})
    for (const std::int64_t rows : {1, 9}) {
      const QuantisedCase s{rows, 256, 50, 1, bits};
      std::vector<float> x = random_floats(s.rows * s.inputs, 1);
      if (rows > 1) {
        x[static_cast<std::size_t>(2 * s.inputs + 33)] = std::nanf("");
        x[static_cast<std::size_t>(3 * s.inputs + 150)] = -INFINITY;
        for (std::int64_t k = 0; k < s.inputs; ++k) x[static_cast<std::size_t>(4 * s.inputs + k)] = k < 64 ? 0.0f : k < 128 ? -1e-36f : 3e38f;
      }
      expect_same_everywhere([&](KernelBench& b) {
        LinearForward op{b.junk(s.rows, s.outputs), b.floats(x, s.rows, s.inputs), upload_quantised(b, random_floats(s.outputs * s.inputs, 2), s)};
        for (const auto& [begin, end] : {std::pair{0, 8}, std::pair{0, 3}, std::pair{2, 7}, std::pair{5, 5}}) {
          op.leaf_begin = begin, op.leaf_end = end;
          b.launch(&KernelTable::linear_forward, op);
          b.record(op.y);
        }
      });
    }
}

TEST(QuantisedEmbedding, ReadsWhatTheHeadMultipliesWith) {
  for (int bits : {8, 4}) {
    const std::int64_t vocabulary = 37, h = 50;
    const std::vector<float> w = random_floats(vocabulary * h, 3);
    const QuantisedCase s{4, h, vocabulary, 1, bits};
    const std::vector<std::int32_t> token = {0, 36, 17, 17};
    expect_same_everywhere([&](KernelBench& b) {
      const View y = b.junk(4, h);
      EmbeddingForward op{y, upload_quantised(b, w, s).data, b.ints(token, 4), true, bits, vocabulary};
      b.launch(&KernelTable::embedding_forward, op);
      b.record(y);
      const std::vector<float> got = b.read(y);
      for (std::size_t t = 0; t < 4; ++t) {
        const std::vector<Group> groups = groups_of(w.data() + token[t] * h, h, bits == 8 ? 127 : 7, true);
        for (std::size_t k = 0; k < static_cast<std::size_t>(h); ++k)
          ASSERT_EQ(got[t * static_cast<std::size_t>(h) + k], static_cast<float>(groups[k / 32].q[k % 32]) * groups[k / 32].scale);
      }
    });
  }
}

TEST(QuantisedHead, LogitsOfChosenRowsAreTheLinearLayersAndLossesComeFromThem) {
  for (int bits : {8, 4}) {
    const QuantisedCase s{5, 96, 130, 1, bits};
    const std::vector<float> x = random_floats(s.rows * s.inputs, 1), w = random_floats(s.outputs * s.inputs, 2);
    const std::vector<float> linear = forward(x, w, s);
    const std::vector<std::int32_t> index = {3, 0, 3};
    expect_same_everywhere([&](KernelBench& b) {
      const View y = b.junk(3, s.outputs), hidden = b.floats(x, s.rows, s.inputs), logprob = b.junk(s.rows, 1);
      const PackedWeight weight = upload_quantised(b, w, s);
      b.launch(&KernelTable::head_logits, HeadLogits{y, hidden, b.ints(index, 3), weight});
      HeadLoss loss;
      loss.logprob = logprob;
      loss.flags = b.ints({0, 0, 0, 0, 0}, s.rows);
      loss.x = hidden;
      loss.w = weight;
      loss.target = b.ints({1, 129, 5, 64, -1}, s.rows);
      loss.logits_chunk = b.zeros(2, s.outputs);
      b.launch(&KernelTable::head_loss, loss);
      b.record(y);
      b.record(logprob);
      const std::vector<float> got = b.read(y), scored = b.read(logprob);
      for (std::size_t i = 0; i < 3; ++i)
        for (std::size_t n = 0; n < static_cast<std::size_t>(s.outputs); ++n)
          ASSERT_EQ(float_bits(got[i * static_cast<std::size_t>(s.outputs) + n]),
                    float_bits(linear[static_cast<std::size_t>(index[i]) * static_cast<std::size_t>(s.outputs) + n]));
      double sum = 0;
      for (std::size_t n = 0; n < static_cast<std::size_t>(s.outputs); ++n) sum += std::exp(static_cast<double>(linear[n]));
      EXPECT_NEAR(scored[0], static_cast<double>(linear[1]) - std::log(sum), 1e-5);
    });
  }
}

}  // namespace
}  // namespace lockstep
