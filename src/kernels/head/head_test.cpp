// The fused head: values against double, the written order of log-sum-exp and of both gradients, invariance of the bits to
// chunks, threads and instruction sets.
#include "kernels/head/head.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "kernels/head/head_test_tools.h"
#include "kernels/launch.h"
#include "numerics/elementary.h"
#include "numerics/form.h"
#include "numerics/isa/scalar.h"

namespace lockstep {
namespace {

// The definition in double.
struct Reference {
  std::vector<double> logprob, entropy, loss, slope;
  double total = 0;
};
Reference head_reference(const HeadBatch& b, const std::vector<double>& x, const std::vector<double>& w) {
  Reference r;
  for (std::int64_t t = 0; t < b.rows; ++t) {
    double logprob = 0, entropy = 0, loss = 0, slope = 0;
    if (b.target[t] >= 0) {
      std::vector<double> z(static_cast<std::size_t>(b.vocabulary), 0.0);
      for (std::int64_t v = 0; v < b.vocabulary; ++v)
        for (std::int64_t k = 0; k < b.inputs; ++k) z[v] += x[t * b.inputs + k] * w[v * b.inputs + k];
      const double m = *std::max_element(z.begin(), z.end());
      double sum = 0;
      for (double e : z) sum += std::exp(e - m);
      const double lse = m + std::log(sum);
      logprob = z[b.target[t]] - lse;
      entropy = lse;
      for (double e : z) entropy -= std::exp(e - lse) * e;
      if (b.kind == LossKind::cross_entropy) loss = -b.weight[t] * logprob, slope = -b.weight[t];
      if (b.kind == LossKind::policy) {
        const double l = std::clamp(logprob - b.old_logprob[t], -20.0, 20.0), ratio = std::exp(l), a = b.advantage[t];
        const double clipped = std::clamp(ratio, static_cast<double>(b.parameters.clip_low), static_cast<double>(b.parameters.clip_high)) * a;
        loss = -b.weight[t] * std::min(ratio * a, clipped);
        slope = ratio * a <= clipped ? -b.weight[t] * a * ratio : 0;
      }
    }
    r.logprob.push_back(logprob);
    r.entropy.push_back(entropy);
    r.loss.push_back(loss);
    r.slope.push_back(slope);
    r.total += loss;
  }
  return r;
}

TEST(Head, ValuesMatchDouble) {
  for (LossKind kind : {LossKind::none, LossKind::cross_entropy, LossKind::policy})
    for (auto [rows, inputs, vocabulary] : std::vector<std::array<std::int64_t, 3>>{{1, 8, 1}, {7, 33, 15}, {20, 64, 17}, {33, 31, 100}, {40, 128, 512}}) {
      const HeadBatch batch = make_head_batch(rows, inputs, vocabulary, kind, 1);
      KernelBench b({.isa = std::nullopt, .threads = 2});
      const Head head = head_of(b, batch, 16, kind != LossKind::none);
      head.launch(b);
      const HeadLoss& op = head.loss;
      const Reference want = head_reference(batch, widened(batch.x), widened(batch.w));
      const std::string name = std::to_string(rows) + " rows, vocabulary " + std::to_string(vocabulary);
      if (vocabulary > 1) {
        expect_close(b.read(op.logprob), want.logprob, 1e-5, name + " logprob");
        expect_close(b.read(op.entropy), want.entropy, 1e-5, name + " entropy");
      }
      if (vocabulary > 1 && kind != LossKind::none) expect_close(b.read(op.loss), want.loss, 2e-5, name + " loss");
      for (std::int32_t flag : b.read_ints(op.flags)) EXPECT_EQ(flag, 0);
    }
}

TEST(Head, GradientsMatchFiniteDifferences) {
  for (LossKind kind : {LossKind::cross_entropy, LossKind::policy}) {
    HeadBatch batch = make_head_batch(12, 6, 19, kind, 7);
    KernelBench b;
    const Head head = head_of(b, batch, 5, true);
    head.launch(b);
    const HeadLoss& op = head.loss;
    const Reference r = head_reference(batch, widened(batch.x), widened(batch.w));
    if (kind == LossKind::policy) {
      EXPECT_GT(std::count(r.slope.begin(), r.slope.end(), 0.0), 3) << "too few clipped rows";
      EXPECT_LT(std::count(r.slope.begin(), r.slope.end(), 0.0), 9) << "too few unclipped rows";
    }
    const auto wide_x = widened(batch.x), wide_w = widened(batch.w);
    expect_close(b.read(op.dx), finite_difference([&](const std::vector<double>& x) { return head_reference(batch, x, wide_w).total; }, wide_x), 1e-5, "dx");
    expect_close(unpack_head(b.read(head.weight.gradient), 19, 6),
                 finite_difference([&](const std::vector<double>& w) { return head_reference(batch, wide_x, w).total; }, wide_w), 1e-5, "dw");
  }
}

// The clip, case by case: which branch a row takes, and the clamp of the log-ratio.
TEST(Head, PolicyLossCases) {
  HeadBatch batch = make_head_batch(8, 16, 40, LossKind::policy, 8);
  batch.target = random_ints(8, 9, 40);
  KernelBench b;
  HeadLoss op = head_of(b, batch, 8, true).loss;
  b.launch(&KernelTable::head_loss, op);
  const std::vector<float> logprob = b.read(op.logprob);
  //                                    inside,  above +, above -, below +, below -, beyond +-20,   A = 0
  const std::vector<double> log_ratio = {0.1, 1.0, 1.0, -1.0, -1.0, 25.0, -25.0, 0.05};
  const std::vector<float> advantage = {1, 1, -1, 1, -1, -1, 1, 0};
  const std::vector<double> slope_sign = {-1, 0, 1, -1, 0, 0, 0, 0};
  for (std::size_t i = 0; i < 8; ++i) batch.old_logprob[i] = static_cast<float>(logprob[i] - log_ratio[i]);
  batch.advantage = advantage;
  op = head_of(b, batch, 8, true).loss;
  b.launch(&KernelTable::head_loss, op);
  const std::vector<float> loss = b.read(op.loss), dx = b.read(op.dx);
  for (std::size_t i = 0; i < 8; ++i) {
    const double ratio = std::exp(std::clamp(log_ratio[i], -20.0, 20.0));
    const double want = -batch.weight[i] * std::min(ratio * advantage[i], std::clamp(ratio, 0.8, 1.28) * advantage[i]);
    EXPECT_NEAR(loss[i], want, 1e-5 * std::max(1.0, std::fabs(want))) << "row " << i;
    double norm = 0;
    for (std::size_t k = 0; k < 16; ++k) norm += std::fabs(dx[i * 16 + k]);
    EXPECT_EQ(norm > 0, slope_sign[i] != 0) << "row " << i;
  }
}

// log-sum-exp, log-probability, entropy and the logits' gradient, in the order that head.h writes.
struct HeadByHand {
  std::vector<float> logprob, entropy, dz;
};
HeadByHand head_by_hand(const HeadBatch& b, const std::vector<float>& logits) {
  const auto exponential = [](float v) { return exp_element<ScalarVec>(v); };
  const int leaves = leaf_count(b.vocabulary);
  const std::int64_t size = b.vocabulary / leaves;
  const auto dot = [&](std::int64_t n, const auto& a, const auto& c) {
    float lane[16] = {};
    for (std::int64_t i = 0; i < n; ++i) lane[i % 16] = std::fma(a(i), c(i), lane[i % 16]);
    for (int half = 8; half >= 1; half /= 2)
      for (int i = 0; i < half; ++i) lane[i] += lane[i + half];
    return lane[0];
  };
  HeadByHand out;
  for (std::int64_t t = 0; t < b.rows; ++t) {
    const float* z = logits.data() + t * b.vocabulary;
    const std::int32_t target = b.target[static_cast<std::size_t>(t)];
    float m[8], s[8], h[8];
    for (int leaf = 0; leaf < leaves; ++leaf) {
      m[leaf] = *std::max_element(z + leaf * size, z + (leaf + 1) * size);
      s[leaf] = dot(
          size, [](std::int64_t) { return 1.0f; }, [&](std::int64_t i) { return exponential(z[leaf * size + i] - m[leaf]); });
    }
    for (int count = leaves; count > 1; count /= 2)
      for (int i = 0; i < count / 2; ++i) {
        const float larger = std::max(m[2 * i], m[2 * i + 1]);
        s[i] = std::fma(s[2 * i], exponential(m[2 * i] - larger), s[2 * i + 1] * exponential(m[2 * i + 1] - larger));
        m[i] = larger;
      }
    const float lse = m[0] + log_element<ScalarVec>(s[0]);
    for (int leaf = 0; leaf < leaves; ++leaf)
      h[leaf] = dot(
          size, [&](std::int64_t i) { return exponential(z[leaf * size + i] - lse); }, [&](std::int64_t i) { return z[leaf * size + i]; });
    out.logprob.push_back(target < 0 ? 0.0f : z[target] - lse);
    out.entropy.push_back(target < 0 ? 0.0f : lse - join_pairwise(h, leaves));
    const float slope = target < 0 ? 0.0f : 0.0f - b.weight[static_cast<std::size_t>(t)];
    for (std::int64_t v = 0; v < b.vocabulary; ++v) out.dz.push_back(target < 0 ? 0.0f : slope * ((v == target ? 1.0f : 0.0f) - exponential(z[v] - lse)));
  }
  return out;
}

// 100 rows: more segments than the gradient of the weight takes at once.
TEST(Head, BitsOfTheWrittenOrder) {
  for (auto [rows, inputs, vocabulary] : std::vector<std::array<std::int64_t, 3>>{{9, 33, 15}, {20, 64, 17}, {33, 128, 100}, {100, 64, 192}, {40, 128, 512}}) {
    const HeadBatch batch = make_head_batch(rows, inputs, vocabulary, LossKind::cross_entropy, 11);
    KernelBench b({.isa = std::nullopt, .threads = 2});
    const Head head = head_of(b, batch, rows, true);
    head.launch(b);
    const HeadLoss& op = head.loss;
    // The logits, and the two gradients from their gradient, by the linear kernels (proved in linear_test.cpp).
    const View logits = b.junk(rows, vocabulary);
    LinearForward forward{logits, op.x, op.w};
    b.launch(&KernelTable::linear_forward, forward);
    const HeadByHand want = head_by_hand(batch, b.read(logits));
    const std::string name = "vocabulary " + std::to_string(vocabulary);
    expect_same_words(words_of(b.read(op.logprob)), words_of(want.logprob), name + " logprob");
    expect_same_words(words_of(b.read(op.entropy)), words_of(want.entropy), name + " entropy");
    const View dz = b.floats(want.dz, rows, vocabulary), dx = b.junk(rows, inputs), dw = b.junk(op.w.panels(), inputs * 16);
    b.launch(&KernelTable::linear_backward_input, LinearBackwardInput{dx, dz, op.w});
    LinearBackwardWeight weight{dw, {}, true, dz, op.x, op.w};
    weight.segment = head.weight.segment;
    b.launch(&KernelTable::linear_backward_weight, weight);
    expect_same_words(words_of(b.read(op.dx)), words_of(b.read(dx)), name + " dx");
    expect_same_words(words_of(b.read(head.weight.gradient)), words_of(b.read(dw)), name + " dw");
  }
}

TEST(Head, TheSameEverywhereAndInAnyChunks) {
  for (auto [rows, inputs, vocabulary] : std::vector<std::array<std::int64_t, 3>>{{1, 15, 33}, {17, 33, 17}, {33, 64, 100}, {48, 64, 256}})
    for (LossKind kind : {LossKind::cross_entropy, LossKind::policy})
      for (DType dtype : {DType::f32, DType::bf16}) {
        SCOPED_TRACE("vocabulary " + std::to_string(vocabulary));
        const HeadBatch batch = make_head_batch(rows, inputs, vocabulary, kind, 12);
        expect_same_everywhere([&](KernelBench& b) {
          std::vector<std::uint64_t> first_bits, first_hashes;
          for (std::int64_t chunk : {rows + 3, std::int64_t{5}, std::int64_t{12}}) {
            const Head head = head_of(b, batch, chunk, true, dtype);
            head.launch(b);
            const HeadLoss& op = head.loss;
            const std::size_t bits_before = b.bits().size(), hashes_before = b.hashes().size();
            for (const View& v : {op.logprob, op.entropy, op.loss, op.dx, head.weight.gradient}) b.record(v);
            const std::vector<std::uint64_t> bits(b.bits().begin() + static_cast<std::ptrdiff_t>(bits_before), b.bits().end());
            const std::vector<std::uint64_t> hashes(b.hashes().begin() + static_cast<std::ptrdiff_t>(hashes_before), b.hashes().end());
            if (first_bits.empty()) first_bits = bits, first_hashes = hashes;
            expect_same_words(bits, first_bits, "bits with a chunk of " + std::to_string(chunk));
            expect_same_words(hashes, first_hashes, "hashes with a chunk of " + std::to_string(chunk));
          }
          // Scoring alone gives the same log-probabilities, in chunks of any rows.
          HeadBatch scored = batch;
          scored.kind = LossKind::none;
          const HeadLoss score = head_of(b, scored, 3, false, dtype).loss;
          b.launch(&KernelTable::head_loss, score);
          std::vector<std::uint64_t> words = words_of(b.read(score.logprob));
          expect_same_words(words, {first_bits.begin(), first_bits.begin() + rows}, "scored");
        });
      }
}

TEST(Head, BinsPersistBetweenCalls) {
  const HeadBatch batch = make_head_batch(30, 20, 50, LossKind::cross_entropy, 13);
  KernelBench b({.isa = std::nullopt, .threads = 2});
  const Head whole = head_of(b, batch, 10, true);
  whole.launch(b);
  const std::vector<std::uint64_t> once = words_of(b.read(whole.weight.gradient)), dx = words_of(b.read(whole.loss.dx));
  Head part = whole;
  part.weight.bins = b.zeros(1, part.loss.w.packed_size(), DType::bins);
  part.weight.gradient = b.junk(part.loss.w.panels(), batch.inputs * 16);
  for (auto [begin, count, finish] : std::vector<std::tuple<std::int64_t, std::int64_t, bool>>{{15, 15, false}, {0, 15, true}}) {
    for (auto member : {&HeadLoss::logprob, &HeadLoss::entropy, &HeadLoss::loss, &HeadLoss::flags, &HeadLoss::x, &HeadLoss::target, &HeadLoss::dx,
                        &HeadLoss::log_sum, &HeadLoss::slope})
      part.loss.*member = (whole.loss.*member).row_range(begin, count);
    part.loss.objective = whole.loss.objective.row_range(begin, count);
    for (auto member : {&HeadWeight::x, &HeadWeight::target, &HeadWeight::log_sum, &HeadWeight::slope, &HeadWeight::segment})
      part.weight.*member = (whole.weight.*member).row_range(begin, count);
    part.weight.finish = finish;
    part.launch(b);
  }
  expect_same_words(words_of(b.read(part.weight.gradient)), once, "gradient of two calls");
  expect_same_words(words_of(b.read(whole.loss.dx)), dx, "dx of two calls");
}

// More rows than there are logits of at a time: the gradient is that of calls for some of them each, also of a tied table, with accumulators and without.
TEST(Head, RowsInPartsHaveTheBitsOfTheWhole) {
  constexpr std::int64_t rows = 40000, inputs = 5, vocabulary = 40;
  HeadBatch batch = make_head_batch(rows, inputs, vocabulary, LossKind::cross_entropy, 23);
  for (std::int64_t t = 0; t < rows; ++t) batch.segment[static_cast<std::size_t>(t)] = static_cast<std::int32_t>(t / 512);
  const std::vector<float> table = random_floats(rows * inputs, 24);
  const std::vector<std::int32_t> tokens = random_ints(rows, 25, vocabulary);
  for (const int threads : {1, 2}) {
    KernelBench b({.isa = std::nullopt, .threads = threads});
    const Head head = head_of(b, batch, 512, true);
    b.launch(&KernelTable::head_loss, head.loss);
    for (const bool tied : {false, true}) {
      HeadWeight whole = head.weight;
      if (tied) whole.table_dy = b.floats(table, rows, inputs), whole.token = b.ints(tokens, rows);
      const auto gradient = [&](HeadWeight op) {
        op.gradient = b.junk(op.w.panels(), inputs * 16);
        b.launch(&KernelTable::head_weight, op);
        return words_of(b.read(op.gradient));
      };
      HeadWeight kept = whole, part = whole;
      kept.bins = b.zeros(1, whole.w.packed_size(), DType::bins), part.bins = b.zeros(1, whole.w.packed_size(), DType::bins);
      std::vector<std::uint64_t> in_calls;
      for (std::int64_t begin = 0, count; begin < rows; begin += count) {
        count = std::min<std::int64_t>(15360, rows - begin);
        for (auto member : {&HeadWeight::x, &HeadWeight::target, &HeadWeight::log_sum, &HeadWeight::slope, &HeadWeight::segment})
          part.*member = (whole.*member).row_range(begin, count);
        if (tied) part.table_dy = whole.table_dy.row_range(begin, count), part.token = whole.token.row_range(begin, count);
        part.finish = begin + count == rows;
        in_calls = gradient(part);
      }
      expect_same_words(gradient(whole), in_calls, "in one call");
      expect_same_words(gradient(kept), in_calls, "in one call, with accumulators");
    }
  }
}

TEST(Head, NotANumberIsMarkedInItsRowAlone) {
  HeadBatch batch = make_head_batch(7, 20, 50, LossKind::cross_entropy, 14);
  batch.target = random_ints(7, 15, 50);
  batch.target[5] = -1;
  KernelBench b;
  const HeadLoss clean = head_of(b, batch, 7, true).loss;
  b.launch(&KernelTable::head_loss, clean);
  const std::vector<float> before = b.read(clean.logprob);
  batch.x[2 * 20 + 3] = std::numeric_limits<float>::quiet_NaN();
  batch.x[4 * 20] = std::numeric_limits<float>::infinity();
  batch.x[5 * 20] = std::numeric_limits<float>::infinity();  // not scored, not looked at
  const Head head = head_of(b, batch, 7, true);
  head.launch(b);
  const HeadLoss& op = head.loss;
  EXPECT_EQ(b.read_ints(op.flags), (std::vector<std::int32_t>{0, 0, 4, 0, 4, 0, 0}));
  const std::vector<float> after = b.read(op.logprob);
  for (std::size_t t : {0, 1, 3, 5, 6}) EXPECT_EQ(float_bits(after[t]), float_bits(before[t])) << t;
  EXPECT_TRUE(std::isnan(after[2]) && std::isnan(after[4]));
}

TEST(Head, LogitsOfChosenRows) {
  for (std::int64_t chosen : {1, 3, 60}) {
    const HeadBatch batch = make_head_batch(40, 64, 150, LossKind::none, 16);
    const std::vector<std::int32_t> index = random_ints(chosen, 17, 40);
    for (bool round : {false, true})
      expect_same_everywhere([&](KernelBench& b) {
        const HeadLoss all = head_of(b, batch, 40, false, DType::bf16).loss;
        const View logits = b.junk(40, 150);
        LinearForward forward{logits, all.x, all.w};
        forward.round_input_bf16 = round;
        b.launch(&KernelTable::linear_forward, forward);
        const std::vector<float> every = b.read(logits);
        const HeadLogits op{b.junk(chosen, 150), all.x, b.ints(index, chosen), all.w, round};
        b.launch(&KernelTable::head_logits, op);
        std::vector<float> want;
        for (std::int32_t i : index) want.insert(want.end(), every.begin() + i * 150, every.begin() + (i + 1) * 150);
        expect_same_words(words_of(b.read(op.y)), words_of(want), "rows chosen");
        b.record(op.y);
      });
  }
}

TEST(Head, LogitsAreTheSameEverywhere) {
  for (auto [inputs, vocabulary] : std::vector<std::array<std::int64_t, 2>>{{1, 1}, {33, 15}, {64, 17}, {256, 150}}) {
    const HeadBatch batch = make_head_batch(9, inputs, vocabulary, LossKind::none, 16);
    for (const DType dtype : {DType::f32, DType::bf16})
      expect_same_everywhere([&](KernelBench& b) {
        const HeadLoss all = head_of(b, batch, 9, false, dtype).loss;
        const View index = b.ints({3, 8, 0, 3, 5, 5, 1}, 7);
        PackedWeight few = all.w;
        few.maximum_leaves = 2;
        for (const HeadLogits& op :
             {HeadLogits{b.junk(7, vocabulary), all.x, index, all.w, false}, HeadLogits{b.junk(7, vocabulary), all.x, index, all.w, true},
              HeadLogits{b.junk(7, vocabulary), all.x, index, few, false}}) {
          b.launch(&KernelTable::head_logits, op);
          b.record(op.y);
        }
      });
  }
}

// Inputs that are rounded, a row that is no number, bins that stay, a share of the vocabulary, a tied table.
TEST(Head, GradientsOfEveryFormAreTheSameEverywhere) {
  HeadBatch batch = make_head_batch(23, 20, 50, LossKind::policy, 20, 2);
  batch.parameters.entropy_coefficient = 0.2f;
  batch.target[0] = batch.target[1] = -1;
  for (const bool nan : {false, true}) {
    if (nan) batch.x[3 * 20] = std::numeric_limits<float>::quiet_NaN();
    expect_same_everywhere([&](KernelBench& b) {
      Head head = head_of(b, batch, 7, true);
      head.loss.round_input_bf16 = head.weight.round_input_bf16 = true;
      head.launch(b);
      for (const View& v : {head.loss.logprob, head.loss.entropy, head.loss.loss, head.loss.marks, head.loss.flags, head.loss.dx, head.loss.log_sum,
                            head.loss.slope, head.loss.entropy_slope, head.weight.gradient})
        b.record(v);
      HeadWeight share = head.weight;
      share.first = 16;
      share.w.outputs = 30;
      share.w.data = head.weight.w.data.column_range(16 * 20, 32 * 20);
      share.gradient = b.junk(2, 20 * 16);
      b.launch(&KernelTable::head_weight, share);
      b.record(share.gradient);
      // Two calls of the same rows, the second of which finishes; of a tied table.
      HeadWeight tied = head.weight;
      tied.table_dy = b.floats(random_floats(23 * 20, 21), 23, 20);
      tied.token = b.ints(random_ints(23, 22, 50), 23);
      tied.bins = b.zeros(1, tied.w.packed_size(), DType::bins);
      tied.gradient = {}, tied.finish = false;
      b.launch(&KernelTable::head_weight, tied);
      tied.gradient = b.junk(4, 20 * 16), tied.finish = true;
      b.launch(&KernelTable::head_weight, tied);
      b.record(tied.gradient);
      tied.bins = {};
      b.launch(&KernelTable::head_weight, tied);
      b.record(tied.gradient);
    });
  }
}

// Ranks that share the vocabulary: each makes the gradient of its own tokens.
TEST(Head, AShareOfTheVocabularyHasTheBitsOfTheWhole) {
  const HeadBatch batch = make_head_batch(30, 20, 128, LossKind::cross_entropy, 19);
  KernelBench b({.isa = std::nullopt, .threads = 2});
  const Head whole = head_of(b, batch, 10, true);
  whole.launch(b);
  const std::vector<float> want = b.read(whole.weight.gradient);
  for (auto [first, count] : {std::pair{0, 48}, std::pair{48, 80}}) {
    HeadWeight share = whole.weight;
    share.first = first;
    share.w.outputs = count;
    share.w.data = whole.weight.w.data.column_range(first * batch.inputs, count * batch.inputs);
    share.gradient = b.junk(share.w.panels(), batch.inputs * 16);
    b.launch(&KernelTable::head_weight, share);
    const auto begin = want.begin() + first * batch.inputs;
    expect_same_words(words_of(b.read(share.gradient)), words_of(std::vector<float>(begin, begin + count * batch.inputs)), "share");
  }
}

// The vocabulary cut along its leaves into `ranks` shares: the small sums of all leaves, put side by side, make the results of the
// whole head; the shares' dx join to its dx, and their gradients are its rows.
struct Shares {
  View logprob, entropy, loss, flags;
  std::vector<View> dx, gradient;
};
Shares launch_shares(KernelBench& b, const HeadBatch& batch, const Head& head, std::int64_t ranks) {
  const HeadLoss& whole = head.loss;
  const int leaves = leaf_count(batch.vocabulary, 8);
  const std::int64_t own = leaves / ranks, tokens = batch.vocabulary / ranks;
  Shares s{b.junk(batch.rows, whole.target.cols), b.junk(batch.rows, 1), b.junk(batch.rows, whole.target.cols), b.zeros(batch.rows, 1, DType::i32), {}, {}};
  const std::int64_t width = 2 + whole.target.cols;
  const View sums = b.junk(batch.rows, width * leaves), entropies = b.junk(batch.rows, leaves), log_sum = b.junk(batch.rows, 1),
             slope = b.junk(batch.rows, whole.target.cols);
  const View entropy_slope = whole.entropy_slope ? b.junk(batch.rows, 1) : View{};
  const RowDistribution& distribution = whole.distribution;
  const std::int64_t places = std::min(distribution.most_kept, batch.vocabulary / leaves);
  const View kept = distribution.kept ? b.junk(batch.rows, places * leaves) : View{};
  std::vector<View> z;
  std::vector<PackedWeight> w;
  for (std::int64_t r = 0; r < ranks; ++r) {
    const std::vector<float> packed =
        pack_head({batch.w.begin() + r * tokens * batch.inputs, batch.w.begin() + (r + 1) * tokens * batch.inputs}, tokens, batch.inputs);
    w.push_back({b.floats(packed, 1, static_cast<std::int64_t>(packed.size())), tokens, batch.inputs});
    z.push_back(b.junk(batch.rows, tokens));
    b.launch(&KernelTable::linear_forward, LinearForward{z.back(), whole.x, w.back()});
    b.launch(&KernelTable::head_shard_sums, HeadShardSums{sums.column_range(width * r * own, width * own), z.back(), whole.target, r * tokens, own,
                                                          distribution, kept ? kept.column_range(places * r * own, places * own) : View{}});
  }
  HeadShardLoss loss{log_sum, slope, s.logprob, s.loss, {}, s.flags, entropy_slope, sums, whole.target, batch.vocabulary, whole.objective, distribution, kept};
  b.launch(&KernelTable::head_shard_loss, loss);
  const auto gradient = [&](std::int64_t r, bool sums, bool learns) {
    HeadShardGradient op{z[static_cast<std::size_t>(r)], {}, log_sum, slope, whole.target, r * tokens, learns};
    op.distribution = distribution;
    if (sums) op.entropy = entropies.column_range(r * own, own);
    if (entropy_slope) op.row_entropy = s.entropy, op.entropy_slope = entropy_slope;
    b.launch(&KernelTable::head_shard_gradient, op);
  };
  for (std::int64_t r = 0; r < ranks; ++r) gradient(r, true, !entropy_slope);
  b.launch(&KernelTable::head_shard_entropy, HeadShardEntropy{s.entropy, entropies, log_sum, whole.target, s.loss, entropy_slope, distribution, kept});
  for (std::int64_t r = 0; r < ranks; ++r) {
    const auto at = static_cast<std::size_t>(r);
    if (entropy_slope) gradient(r, false, true);
    s.dx.push_back(b.junk(batch.rows, batch.inputs));
    PackedWeight share = w[at];
    share.maximum_leaves = static_cast<int>(own);
    b.launch(&KernelTable::linear_backward_input, LinearBackwardInput{s.dx.back(), z[at], share});
    s.gradient.push_back(b.junk(share.panels(), batch.inputs * 16));
    LinearBackwardWeight weight{s.gradient.back(), {}, true, z[at], whole.x, share};
    weight.segment = head.weight.segment;
    b.launch(&KernelTable::linear_backward_weight, weight);
  }
  for (std::int64_t step = 1; step < ranks; step *= 2)
    for (std::int64_t r = 0; r < ranks; r += 2 * step) {
      const View into = s.dx[static_cast<std::size_t>(r)];
      b.launch(&KernelTable::add, Add{into, into, s.dx[static_cast<std::size_t>(r + step)]});
    }
  return s;
}

TEST(HeadShards, HaveTheBitsAndTheExpressionsOfTheWholeHead) {
  struct Kind {
    LossKind kind;
    std::int64_t targets = 1;
    float entropy = 0;
    bool sampled = false;  // rows of other distributions
  };
  for (const Kind& kind : {Kind{LossKind::cross_entropy},
                           {LossKind::policy},
                           {LossKind::cross_entropy, 3},
                           {LossKind::policy, 1, 0.1f},
                           {LossKind::policy, 1, 0.1f, true},
                           {LossKind::cross_entropy, 3, 0, true}})
    for (const std::int64_t vocabulary : {96, 272, 300}) {  // 2 leaves, 8 of 34, 4 of 75
      HeadBatch batch = make_head_batch(13, 40, vocabulary, kind.kind, 50, kind.targets);
      batch.parameters.entropy_coefficient = kind.entropy;
      batch.weight[3] = 0;  // a row without a slope
      const int leaves = leaf_count(vocabulary, 8);
      ASSERT_GE(leaves, 2);
      for (const InstructionSet isa : {InstructionSet::scalar, InstructionSet::avx2, InstructionSet::avx512})
        for (const BackendKind backend : {BackendKind::cpu, BackendKind::traced})
          for (std::int64_t ranks = 1; ranks <= leaves; ranks *= 2) {
            if (!machine_has(isa)) continue;
            SCOPED_TRACE(fmt::format("{} targets, entropy {}, sampled {}, {} tokens, {} ranks, {}, backend {}", kind.targets, kind.entropy, kind.sampled,
                                     vocabulary, ranks, instruction_set_name(isa), static_cast<int>(backend)));
            KernelBench b({.kind = backend, .isa = isa, .threads = 1});
            Head head = head_of(b, batch, 5, true);
            if (kind.sampled) head.loss.distribution = head.weight.distribution = distribution_of(b, make_head_support(batch, 52), vocabulary);
            head.launch(b);
            const HeadLoss& whole = head.loss;
            const Shares shares = launch_shares(b, batch, head, ranks);
            const auto same = [&](const View& got, const View& want, const char* what) {
              expect_same_words(words_of(b.read(got)), words_of(b.read(want)), what);
              if (b.traced()) expect_same_words(b.backend().stream().read_hashes(got).get(), b.backend().stream().read_hashes(want).get(), what);
            };
            same(shares.logprob, whole.logprob, "logprob");
            same(shares.loss, whole.loss, "loss");
            same(shares.entropy, whole.entropy, "entropy");
            same(shares.dx[0], whole.dx, "dx");
            EXPECT_EQ(b.read_ints(shares.flags), b.read_ints(whole.flags));
            std::vector<float> rows;
            for (const View& g : shares.gradient) {
              const std::vector<float> part = unpack_head(b.read(g), vocabulary / ranks, batch.inputs);
              rows.insert(rows.end(), part.begin(), part.end());
            }
            expect_same_words(words_of(rows), words_of(unpack_head(b.read(head.weight.gradient), vocabulary, batch.inputs)), "gradient");
          }
    }
}

// The kernels of a share by themselves, of logits that no product made.
TEST(HeadShards, AreTheSameEverywhere) {
  struct Kind {
    LossKind kind;
    std::int64_t targets = 1;
    float entropy = 0;
  };
  for (const Kind& kind : {Kind{LossKind::cross_entropy, 3}, {LossKind::policy, 1, 0.1f}})
    for (const std::int64_t vocabulary : {15, 96, 300}) {
      HeadBatch batch = make_head_batch(13, 40, vocabulary, kind.kind, 50, kind.targets);
      batch.parameters.entropy_coefficient = kind.entropy;
      batch.weight[3] = 0;
      std::vector<float> logits = random_floats(13 * vocabulary, 51, -5, 5);
      logits[static_cast<std::size_t>(2 * vocabulary)] = std::numeric_limits<float>::quiet_NaN();
      expect_same_everywhere([&](KernelBench& b) {
        const HeadLoss whole = head_of(b, batch, 5, true).loss;
        const int leaves = leaf_count(vocabulary, 8);
        const std::int64_t ranks = leaves > 1 ? 2 : 1, own = leaves / ranks, tokens = vocabulary / ranks, width = 2 + kind.targets;
        const View z = b.floats(logits, 13, vocabulary), sums = b.junk(13, width * leaves), entropies = b.junk(13, leaves);
        for (std::int64_t r = 0; r < ranks; ++r)
          b.launch(&KernelTable::head_shard_sums,
                   HeadShardSums{sums.column_range(width * r * own, width * own), z.column_range(r * tokens, tokens), whole.target, r * tokens, own});
        b.record(sums);
        b.launch(&KernelTable::head_shard_loss, HeadShardLoss{whole.log_sum, whole.slope, whole.logprob, whole.loss, whole.marks, whole.flags,
                                                              whole.entropy_slope, sums, whole.target, vocabulary, whole.objective});
        const auto gradient = [&](bool with_sums, bool learns) {
          for (std::int64_t r = 0; r < ranks; ++r) {
            HeadShardGradient op{z.column_range(r * tokens, tokens), {}, whole.log_sum, whole.slope, whole.target, r * tokens, learns};
            if (with_sums) op.entropy = entropies.column_range(r * own, own);
            if (whole.entropy_slope) op.row_entropy = whole.entropy, op.entropy_slope = whole.entropy_slope;
            b.launch(&KernelTable::head_shard_gradient, op);
          }
        };
        gradient(true, !whole.entropy_slope);
        b.record(entropies);
        b.launch(&KernelTable::head_shard_entropy, HeadShardEntropy{whole.entropy, entropies, whole.log_sum, whole.target, whole.loss, whole.entropy_slope});
        if (whole.entropy_slope) gradient(false, true);
        for (const View& v : {z, whole.log_sum, whole.slope, whole.logprob, whole.loss, whole.marks, whole.flags, whole.entropy}) b.record(v);
      });
    }
}

TEST(Head, NoRowsGiveAZeroGradient) {
  const HeadBatch batch = make_head_batch(0, 20, 30, LossKind::cross_entropy, 18);
  expect_same_everywhere([&](KernelBench& b) {
    const Head head = head_of(b, batch, 4, true);
    head.launch(b);
    for (float v : b.read(head.weight.gradient)) EXPECT_EQ(float_bits(v), 0u);
    b.record(head.weight.gradient);
  });
}

}  // namespace
}  // namespace lockstep
