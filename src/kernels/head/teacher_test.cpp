// Rows with a teacher: the three divergences against double, their gradients by finite differences, the written order, invariance of the bits to chunks,
// threads, instruction sets and ranges of the vocabulary; what is equal to its teacher learns nothing.
#include "kernels/head/teacher.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "kernels/head/head_test_tools.h"
#include "numerics/elementary.h"
#include "numerics/form.h"
#include "numerics/isa/scalar.h"

namespace lockstep {
namespace {

constexpr Divergence kDivergences[] = {Divergence::reverse, Divergence::forward, Divergence::jensen_shannon};

struct TaughtBatch {
  HeadBatch batch;
  Divergence divergence;
  std::int64_t inputs;      // of the teacher's head
  std::vector<float> x, w;  // the teacher's
};

TaughtBatch make_taught_batch(std::int64_t rows, std::int64_t inputs, std::int64_t teacher_inputs, std::int64_t vocabulary, Divergence divergence,
                              std::uint64_t seed) {
  return {make_head_batch(rows, inputs, vocabulary, LossKind::divergence, seed), divergence, teacher_inputs,
          random_floats(rows * teacher_inputs, seed + 20, -2, 2), random_floats(vocabulary * teacher_inputs, seed + 21, -0.5, 0.5)};
}

Head taught_head_of(KernelBench& b, const TaughtBatch& taught, std::int64_t chunk_rows, bool learns, DType dtype = DType::f32) {
  const HeadBatch& batch = taught.batch;
  Head head = head_of(b, batch, chunk_rows, learns, dtype);
  HeadTeacher teacher;
  teacher.x = b.floats(taught.x, batch.rows, taught.inputs);
  teacher.w.outputs = batch.vocabulary;
  teacher.w.inputs = taught.inputs;
  const std::vector<float> packed = pack_head(taught.w, batch.vocabulary, taught.inputs);
  teacher.w.data = b.floats(packed, 1, static_cast<std::int64_t>(packed.size()), dtype);
  teacher.divergence = taught.divergence;
  teacher.log_sum = b.junk(batch.rows, 1);
  teacher.centre = b.junk(batch.rows, 1);
  head.weight.teacher = teacher;
  teacher.logits_chunk = b.junk(chunk_rows, batch.vocabulary);
  head.loss.teacher = teacher;
  return head;
}

std::vector<double> log_softmax(const double* x, const std::vector<double>& w, std::int64_t inputs, std::int64_t vocabulary) {
  std::vector<double> z(static_cast<std::size_t>(vocabulary), 0.0);
  for (std::int64_t v = 0; v < vocabulary; ++v)
    for (std::int64_t k = 0; k < inputs; ++k) z[v] += x[k] * w[v * inputs + k];
  const double m = *std::max_element(z.begin(), z.end());
  double sum = 0;
  for (double e : z) sum += std::exp(e - m);
  for (double& e : z) e -= m + std::log(sum);
  return z;
}

// The weighted divergences of the rows, in double.
std::vector<double> divergences(const TaughtBatch& taught, const std::vector<double>& x, const std::vector<double>& w) {
  const HeadBatch& b = taught.batch;
  const std::vector<double> teacher_x = widened(taught.x), teacher_w = widened(taught.w);
  std::vector<double> losses;
  for (std::int64_t t = 0; t < b.rows; ++t) {
    double value = 0;
    const std::vector<double> q = log_softmax(x.data() + t * b.inputs, w, b.inputs, b.vocabulary),
                              p = log_softmax(teacher_x.data() + t * taught.inputs, teacher_w, taught.inputs, b.vocabulary);
    for (std::size_t v = 0; v < q.size(); ++v) {
      const double mean = std::log((std::exp(q[v]) + std::exp(p[v])) / 2);
      if (taught.divergence == Divergence::reverse) value += std::exp(q[v]) * (q[v] - p[v]);
      if (taught.divergence == Divergence::forward) value += std::exp(p[v]) * (p[v] - q[v]);
      if (taught.divergence == Divergence::jensen_shannon) value += 0.5 * (std::exp(q[v]) * (q[v] - mean) + std::exp(p[v]) * (p[v] - mean));
    }
    losses.push_back(b.target[static_cast<std::size_t>(t)] < 0 ? 0.0 : b.weight[static_cast<std::size_t>(t)] * value);
  }
  return losses;
}

TEST(HeadTeachers, ValuesAndGradientsMatchDouble) {
  for (const Divergence divergence : kDivergences) {
    const TaughtBatch taught = make_taught_batch(12, 6, 5, 19, divergence, 31);
    const HeadBatch& batch = taught.batch;
    KernelBench b({.isa = std::nullopt, .threads = 2});
    const Head head = taught_head_of(b, taught, 5, true);
    head.launch(b);
    const std::vector<double> x = widened(batch.x), w = widened(batch.w);
    const auto total = [&](const std::vector<double>& of_x, const std::vector<double>& of_w) {
      double sum = 0;
      for (const double loss : divergences(taught, of_x, of_w)) sum += loss;
      return sum;
    };
    expect_close(b.read(head.loss.loss), divergences(taught, x, w), 2e-5, "loss");
    expect_close(b.read(head.loss.dx), finite_difference([&](const std::vector<double>& v) { return total(v, w); }, x), 2e-5, "dx");
    expect_close(unpack_head(b.read(head.weight.gradient), 19, 6), finite_difference([&](const std::vector<double>& v) { return total(x, v); }, w), 2e-5, "dw");
    for (const std::int32_t flag : b.read_ints(head.loss.flags)) EXPECT_EQ(flag, 0);
    // What is said of the target beside it is what a head without a teacher says.
    HeadBatch alone = batch;
    alone.kind = LossKind::none;
    const HeadLoss score = head_of(b, alone, 12, false).loss;
    b.launch(&KernelTable::head_loss, score);
    expect_same_words(words_of(b.read(head.loss.logprob)), words_of(b.read(score.logprob)), "logprob");
    expect_same_words(words_of(b.read(head.loss.entropy)), words_of(b.read(score.entropy)), "entropy");
  }
}

// The order that teacher.h writes, number by number.
struct TaughtByHand {
  std::vector<float> loss, dz;
};
TaughtByHand taught_by_hand(const TaughtBatch& taught, const std::vector<float>& student, const std::vector<float>& teacher) {
  const HeadBatch& batch = taught.batch;
  const Divergence kind = taught.divergence;
  const auto exponential = [](float v) { return exp_element<ScalarVec>(v); };
  const auto logarithm = [](float v) { return log_element<ScalarVec>(v); };
  const int leaves = leaf_count(batch.vocabulary);
  const std::int64_t size = batch.vocabulary / leaves;
  const auto dot = [](std::int64_t n, const auto& f, const auto& g) {
    float lane[16] = {};
    for (std::int64_t i = 0; i < n; ++i) lane[i % 16] = std::fma(f(i), g(i), lane[i % 16]);
    for (int half = 8; half >= 1; half /= 2)
      for (int i = 0; i < half; ++i) lane[i] += lane[i + half];
    return lane[0];
  };
  const auto log_sum = [&](const float* z) {
    float m[8], s[8];
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
    return m[0] + logarithm(s[0]);
  };
  const auto term = [&](float a, float b, bool second) {
    if (kind == Divergence::reverse) return a - b;
    const float d = b - a;
    if (kind == Divergence::forward) return d;
    const float distance = d > 0.0f - d ? d : 0.0f - d, r = logarithm(std::fma(0.5f, exponential(0.0f - distance), 0.5f));
    return second ? (d < 0.0f ? d : 0.0f) - r : (0.0f - (d > 0.0f ? d : 0.0f)) - r;
  };
  TaughtByHand out;
  for (std::int64_t t = 0; t < batch.rows; ++t) {
    const float *z = student.data() + t * batch.vocabulary, *y = teacher.data() + t * batch.vocabulary;
    const bool scored = batch.target[static_cast<std::size_t>(t)] >= 0;
    const float of_z = log_sum(z), of_y = log_sum(y), weight = batch.weight[static_cast<std::size_t>(t)];
    float sums[2];
    for (const bool second : {false, true}) {
      float part[8];
      for (int leaf = 0; leaf < leaves; ++leaf) {
        const auto a = [&](std::int64_t i) { return z[leaf * size + i] - of_z; };
        const auto b = [&](std::int64_t i) { return y[leaf * size + i] - of_y; };
        part[leaf] = dot(
            size, [&](std::int64_t i) { return exponential(kind == Divergence::forward || second ? b(i) : a(i)); },
            [&](std::int64_t i) { return term(a(i), b(i), second); });
      }
      sums[second] = join_pairwise(part, leaves);
    }
    out.loss.push_back(scored ? weight * (kind == Divergence::jensen_shannon ? 0.5f * (sums[0] + sums[1]) : sums[0]) : 0.0f);
    for (std::int64_t v = 0; v < batch.vocabulary; ++v) {
      const float a = z[v] - of_z, b = y[v] - of_y, q = exponential(a);
      float dz = weight * (q - exponential(b));
      if (kind == Divergence::reverse) dz = (weight * q) * (term(a, b, false) - sums[0]);
      if (kind == Divergence::jensen_shannon) dz = ((0.5f * weight) * q) * (term(a, b, false) - sums[0]);
      out.dz.push_back(scored ? dz : 0.0f);
    }
  }
  return out;
}

TEST(HeadTeachers, BitsOfTheWrittenOrder) {
  for (const Divergence divergence : kDivergences)
    for (auto [rows, inputs, teacher_inputs, vocabulary] :
         std::vector<std::array<std::int64_t, 4>>{{9, 33, 16, 15}, {20, 64, 100, 17}, {33, 128, 64, 100}, {100, 64, 40, 192}, {40, 128, 64, 512}}) {
      const TaughtBatch taught = make_taught_batch(rows, inputs, teacher_inputs, vocabulary, divergence, 32);
      KernelBench b({.isa = std::nullopt, .threads = 2});
      const Head head = taught_head_of(b, taught, rows, true);
      head.launch(b);
      const HeadLoss& op = head.loss;
      // The logits, and the two gradients from their gradient, by the linear kernels (proved in linear_test.cpp).
      const View student = b.junk(rows, vocabulary), teacher = b.junk(rows, vocabulary);
      b.launch(&KernelTable::linear_forward, LinearForward{student, op.x, op.w});
      b.launch(&KernelTable::linear_forward, LinearForward{teacher, op.teacher.x, op.teacher.w});
      const TaughtByHand want = taught_by_hand(taught, b.read(student), b.read(teacher));
      const std::string name = "vocabulary " + std::to_string(vocabulary);
      expect_same_words(words_of(b.read(op.loss)), words_of(want.loss), name + " loss");
      const View dz = b.floats(want.dz, rows, vocabulary), dx = b.junk(rows, inputs), dw = b.junk(op.w.panels(), inputs * 16);
      b.launch(&KernelTable::linear_backward_input, LinearBackwardInput{dx, dz, op.w});
      LinearBackwardWeight weight{dw, {}, true, dz, op.x, op.w};
      weight.segment = head.weight.segment;
      b.launch(&KernelTable::linear_backward_weight, weight);
      expect_same_words(words_of(b.read(op.dx)), words_of(b.read(dx)), name + " dx");
      expect_same_words(words_of(b.read(head.weight.gradient)), words_of(b.read(dw)), name + " dw");
    }
}

TEST(HeadTeachers, AreTheSameEverywhereAndInAnyChunks) {
  for (const Divergence divergence : kDivergences)
    for (auto [rows, inputs, teacher_inputs, vocabulary] : std::vector<std::array<std::int64_t, 4>>{{1, 15, 7, 33}, {17, 33, 40, 17}, {48, 64, 32, 256}})
      for (DType dtype : {DType::f32, DType::bf16}) {
        SCOPED_TRACE("vocabulary " + std::to_string(vocabulary));
        const TaughtBatch taught = make_taught_batch(rows, inputs, teacher_inputs, vocabulary, divergence, 33);
        expect_same_everywhere([&](KernelBench& b) {
          std::vector<std::uint64_t> first_bits, first_hashes;
          for (std::int64_t chunk : {rows + 3, std::int64_t{5}}) {
            Head head = taught_head_of(b, taught, chunk, true, dtype);
            head.loss.teacher.round_input_bf16 = head.weight.teacher.round_input_bf16 = vocabulary == 17;
            head.launch(b);
            const HeadLoss& op = head.loss;
            const std::size_t bits_before = b.bits().size(), hashes_before = b.hashes().size();
            for (const View& v : {op.logprob, op.entropy, op.loss, op.slope, op.flags, op.teacher.log_sum, op.teacher.centre, op.dx, head.weight.gradient})
              b.record(v);
            const std::vector<std::uint64_t> bits(b.bits().begin() + static_cast<std::ptrdiff_t>(bits_before), b.bits().end());
            const std::vector<std::uint64_t> hashes(b.hashes().begin() + static_cast<std::ptrdiff_t>(hashes_before), b.hashes().end());
            if (first_bits.empty()) first_bits = bits, first_hashes = hashes;
            expect_same_words(bits, first_bits, "bits with a chunk of " + std::to_string(chunk));
            expect_same_words(hashes, first_hashes, "hashes with a chunk of " + std::to_string(chunk));
          }
        });
      }
}

// A range of tokens, bins that stay between two calls, and a tied table: the weight's gradient of the whole.
TEST(HeadTeachers, AnyFormOfTheWeightsGradientHasTheSameBits) {
  for (const Divergence divergence : kDivergences) {
    const TaughtBatch taught = make_taught_batch(23, 20, 12, 50, divergence, 34);
    expect_same_everywhere([&](KernelBench& b) {
      const Head head = taught_head_of(b, taught, 7, true);
      head.launch(b);
      const std::vector<float> whole = b.read(head.weight.gradient);
      HeadWeight range = head.weight;
      range.first = 16;
      range.w.outputs = range.teacher.w.outputs = 32;
      range.w.data = range.w.data.column_range(16 * 20, 32 * 20);
      range.teacher.w.data = range.teacher.w.data.column_range(16 * 12, 32 * 12);
      range.gradient = b.junk(2, 20 * 16);
      b.launch(&KernelTable::head_weight, range);
      expect_same_words(words_of(b.read(range.gradient)), words_of({whole.begin() + 16 * 20, whole.begin() + 48 * 20}), "of a range of tokens");
      HeadWeight kept = head.weight;
      kept.bins = b.zeros(1, kept.w.packed_size(), DType::bins);
      kept.gradient = b.junk(4, 20 * 16);
      b.launch(&KernelTable::head_weight, kept);
      expect_same_words(words_of(b.read(kept.gradient)), words_of(whole), "through bins");
      HeadWeight tied = head.weight;
      tied.table_dy = b.floats(random_floats(23 * 20, 21), 23, 20);
      tied.token = b.ints(random_ints(23, 22, 50), 23);
      tied.gradient = b.junk(4, 20 * 16);
      b.launch(&KernelTable::head_weight, tied);
      b.record(tied.gradient);
    });
  }
}

// Rows by the kernels of head_shard.h, the vocabulary cut along its leaves: of z stands dz at the end.
struct TaughtShares {
  View z, logprob, loss, slope, flags, log_sum, centre;
};
TaughtShares launch_shares_of(KernelBench& b, const TaughtBatch& taught, const HeadLoss& whole, std::int64_t ranks) {
  const std::int64_t rows = taught.batch.rows, vocabulary = taught.batch.vocabulary, leaves = leaf_count(vocabulary), own = leaves / ranks,
                     tokens = vocabulary / ranks, sums_a_leaf = divergence_sums(taught.divergence);
  const auto column = [&] { return b.junk(rows, 1); };
  const TaughtShares s{b.junk(rows, vocabulary), column(), column(), column(), b.zeros(rows, 1, DType::i32), column(), column()};
  HeadTeacher teacher = whole.teacher;
  teacher.log_sum = s.log_sum, teacher.centre = s.centre;
  const View y = b.junk(rows, vocabulary), of_z = b.junk(rows, 3 * leaves), of_y = b.junk(rows, 3 * leaves), sums = b.junk(rows, sums_a_leaf * leaves),
             student = column();
  b.launch(&KernelTable::linear_forward, LinearForward{s.z, whole.x, whole.w});
  b.launch(&KernelTable::linear_forward, LinearForward{y, teacher.x, teacher.w});
  const auto share = [&](const View& v, std::int64_t r) { return v.column_range(v.cols / ranks * r, v.cols / ranks); };
  for (std::int64_t r = 0; r < ranks; ++r) {
    b.launch(&KernelTable::head_shard_sums, HeadShardSums{share(of_z, r), share(s.z, r), whole.target, r * tokens, own});
    b.launch(&KernelTable::head_shard_sums, HeadShardSums{share(of_y, r), share(y, r), whole.target, r * tokens, own});
  }
  b.launch(&KernelTable::head_shard_loss, HeadShardLoss{student, s.slope, s.logprob, s.loss, {}, s.flags, {}, of_z, whole.target, vocabulary, whole.objective});
  b.launch(&KernelTable::head_shard_loss, HeadShardLoss{s.log_sum, column(), column(), {}, {}, s.flags, {}, of_y, whole.target, vocabulary});
  for (std::int64_t r = 0; r < ranks; ++r)
    b.launch(&KernelTable::head_shard_taught, HeadShardTaught{share(s.z, r), share(y, r), share(sums, r), student, {}, whole.target, teacher});
  b.launch(&KernelTable::head_shard_divergence, HeadShardDivergence{s.loss, s.slope, s.flags, sums, whole.target, whole.objective, teacher});
  for (std::int64_t r = 0; r < ranks; ++r)
    b.launch(&KernelTable::head_shard_taught, HeadShardTaught{share(s.z, r), share(y, r), {}, student, s.slope, whole.target, teacher});
  return s;
}

// Bits, all that are not a number being the same.
std::vector<std::uint64_t> numbers_of(std::vector<float> values) {
  for (float& value : values)
    if (std::isnan(value)) value = std::numeric_limits<float>::quiet_NaN();
  return words_of(values);
}

TEST(HeadTeachers, SharesOfTheVocabularyHaveTheBitsOfTheWhole) {
  for (const Divergence divergence : kDivergences)
    for (const std::int64_t vocabulary : {96, 272, 300}) {  // 2 leaves, 8 of 34, 4 of 75
      TaughtBatch taught = make_taught_batch(13, 20, 12, vocabulary, divergence, 37);
      taught.batch.weight[3] = 0;                                  // a row without a slope
      taught.x[2 * 12] = std::numeric_limits<float>::quiet_NaN();  // a row that is marked
      expect_same_everywhere([&](KernelBench& b) {
        const HeadLoss whole = taught_head_of(b, taught, 13, true).loss;
        b.launch(&KernelTable::head_loss, whole);  // whose chunk is all rows: dz stands in the place of their logits
        for (std::int64_t ranks = 1; ranks <= leaf_count(vocabulary); ranks *= 2) {
          const TaughtShares shares = launch_shares_of(b, taught, whole, ranks);
          const std::string name = std::to_string(vocabulary) + " tokens, ranks " + std::to_string(ranks);
          const std::pair<View, View> both[] = {{shares.z, whole.logits_chunk}, {shares.logprob, whole.logprob},         {shares.loss, whole.loss},
                                                {shares.slope, whole.slope},    {shares.log_sum, whole.teacher.log_sum}, {shares.centre, whole.teacher.centre}};
          for (const auto& [got, wanted] : both) expect_same_words(numbers_of(b.read(got)), numbers_of(b.read(wanted)), name);
          EXPECT_EQ(b.read_ints(shares.flags), b.read_ints(whole.flags)) << name;
          for (const View& v : {shares.z, shares.loss, shares.slope, shares.centre}) b.record(v);
        }
      });
    }
}

TEST(HeadTeachers, WhatIsEqualToItsTeacherLearnsNothing) {
  for (const Divergence divergence : kDivergences) {
    TaughtBatch taught = make_taught_batch(20, 24, 24, 130, divergence, 35);
    taught.x = taught.batch.x, taught.w = taught.batch.w;
    const auto moved = [&](const TaughtBatch& of) {
      KernelBench b({.isa = std::nullopt, .threads = 2});
      const Head head = taught_head_of(b, of, 8, true);
      head.launch(b);
      std::int64_t count = 0;
      for (const View& v : {head.loss.loss, head.loss.dx, head.weight.gradient})
        for (const float number : b.read(v)) count += number != 0;
      return count;
    };
    EXPECT_EQ(moved(taught), 0);
    taught.w[7] += 0.25f;  // the control
    EXPECT_GT(moved(taught), 1000);
  }
}

TEST(HeadTeachers, NotANumberIsMarkedInItsRowAlone) {
  TaughtBatch taught = make_taught_batch(7, 20, 10, 50, Divergence::jensen_shannon, 36);
  taught.batch.target = random_ints(7, 15, 50);
  taught.batch.target[5] = -1;
  KernelBench b;
  const Head clean = taught_head_of(b, taught, 7, true);
  b.launch(&KernelTable::head_loss, clean.loss);
  taught.x[2 * 10 + 3] = std::numeric_limits<float>::quiet_NaN();
  taught.x[5 * 10] = std::numeric_limits<float>::infinity();  // not scored, not looked at
  taught.batch.x[4 * 20] = std::numeric_limits<float>::infinity();
  const Head head = taught_head_of(b, taught, 7, true);
  b.launch(&KernelTable::head_loss, head.loss);
  EXPECT_EQ(b.read_ints(head.loss.flags), (std::vector<std::int32_t>{0, 0, 4, 0, 4, 0, 0}));
  const std::vector<float> before = b.read(clean.loss.loss), after = b.read(head.loss.loss);
  for (const std::size_t t : {0, 1, 3, 5, 6}) EXPECT_EQ(float_bits(after[t]), float_bits(before[t])) << t;
}

}  // namespace
}  // namespace lockstep
