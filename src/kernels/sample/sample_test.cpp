// Sampling: bits against a naive implementation of the definition, the distribution, kept sets against double, the trainer's log-probability.
#include "kernels/sample/sample.h"
#include "kernels/launch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "kernels/kernel_test_tools.h"
#include "numerics/elementary.h"
#include "numerics/isa/scalar.h"

namespace lockstep {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct SampleRow {
  std::vector<float> logits;
  float temperature = 1, top_p = 1;
  std::int32_t top_k = 0;
  std::uint64_t seed = 0;
  std::int32_t sample = 0, position = 0;
};
struct SampleResult {
  std::vector<std::int32_t> token, flags;
  std::vector<float> raw, sampling;
};

Sample launch_of(KernelBench& b, const std::vector<SampleRow>& rows) {
  const auto n = static_cast<std::int64_t>(rows.size()), vocabulary = static_cast<std::int64_t>(rows[0].logits.size());
  std::vector<float> logits, temperature, top_p;
  std::vector<std::int32_t> top_k, seed, sample, position;
  for (const SampleRow& r : rows) {
    logits.insert(logits.end(), r.logits.begin(), r.logits.end());
    temperature.push_back(r.temperature);
    top_p.push_back(r.top_p);
    top_k.push_back(r.top_k);
    seed.push_back(static_cast<std::int32_t>(r.seed));
    seed.push_back(static_cast<std::int32_t>(r.seed >> 32));
    sample.push_back(r.sample);
    position.push_back(r.position);
  }
  Sample op;
  op.token = b.zeros(n, 1, DType::i32);
  op.raw_logprob = b.junk(n, 1);
  op.sampling_logprob = b.junk(n, 1);
  op.flags = b.zeros(n, 1, DType::i32);
  op.logits = b.floats(logits, n, vocabulary);
  op.temperature = b.floats(temperature, n, 1);
  op.top_p = b.floats(top_p, n, 1);
  op.top_k = b.ints(top_k, n);
  op.seed = b.ints(seed, n, 2);
  op.sample = b.ints(sample, n);
  op.position = b.ints(position, n);
  b.launch(&KernelTable::sample, op);
  return op;
}
SampleResult run_sample(KernelBench& b, const std::vector<SampleRow>& rows) {
  const Sample op = launch_of(b, rows);
  return {b.read_ints(op.token), b.read_ints(op.flags), b.read(op.raw_logprob), b.read(op.sampling_logprob)};
}

float sample_noise(const SampleRow& row, std::uint32_t id) {
  const Philox::Words words = Philox::generate(
      row.seed, {id / 4, static_cast<std::uint32_t>(row.position), static_cast<std::uint32_t>(row.sample), static_cast<std::uint32_t>(RandomStream::sampling)});
  const float u = (static_cast<float>(words[id % 4] >> 9) + 0.5f) * 0x1p-23f;
  return 0.0f - log_element<ScalarVec>(0.0f - log_element<ScalarVec>(u));
}

// The definition: every token of the vocabulary ranked and given its noise; nothing skipped.
struct SampleByHand {
  std::int32_t token = -1;
  std::vector<std::int32_t> kept;  // by rank
  float kept_chain = 0;            // ascending-rank chain of exp(z - max) over the kept set
  std::vector<float> z;
};
SampleByHand sample_by_hand(const SampleRow& row) {
  SampleByHand out;
  for (float v : row.logits) out.z.push_back(row.temperature > 0 ? v / row.temperature : v);
  const auto& z = out.z;
  std::vector<std::int32_t> order(z.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) { return z[a] > z[b]; });
  if (!(row.temperature > 0)) return out.token = order[0], out;
  if (row.top_k > 0 && row.top_k < static_cast<std::int32_t>(order.size())) order.resize(static_cast<std::size_t>(row.top_k));
  std::vector<float> chain;
  float sum = 0;
  for (std::int32_t id : order) chain.push_back(sum = sum + exp_element<ScalarVec>(z[id] - z[order[0]]));
  if (row.top_p < 1) {
    std::size_t kept = 1;
    while (chain[kept - 1] < row.top_p * sum) ++kept;
    order.resize(kept);
  }
  out.kept = order;
  out.kept_chain = chain[order.size() - 1];
  float best = -kInfinity;
  std::sort(order.begin(), order.end());
  for (std::int32_t id : order)
    if (const float score = z[id] + sample_noise(row, static_cast<std::uint32_t>(id)); score > best) best = score, out.token = id;
  return out;
}

SampleRow random_sample_row(RandomSequence& random, std::int64_t vocabulary, double spread) {
  SampleRow row;
  for (std::int64_t v = 0; v < vocabulary; ++v) row.logits.push_back(static_cast<float>(spread * (random.uniform() * 2 - 1)));
  row.seed = static_cast<std::uint64_t>(random.next()) << 32 | random.next();
  row.sample = static_cast<std::int32_t>(random.below(8));
  row.position = static_cast<std::int32_t>(random.below(100000));
  const float temperatures[] = {1, 0.7f, 1.3f, 0.25f, 3};
  row.temperature = temperatures[random.below(5)];
  return row;
}
void add_filter(SampleRow& row, RandomSequence& random) {
  if (random.below(2)) row.top_k = static_cast<std::int32_t>(1 + random.below(static_cast<std::uint32_t>(row.logits.size()) + 2));
  if (random.below(2)) row.top_p = static_cast<float>(random.uniform());
}

TEST(Sample, NoNoiseIsLargerThanTheBound) {
  const auto gumbel = [](const ScalarVec& u) { return ScalarVec::zero() - log(ScalarVec::zero() - log(u)); };
  const float largest = gumbel(ScalarVec::set1(1.0f - 0x1p-24f)).extract(0);
  EXPECT_EQ((static_cast<float>(0xffffffffu >> 9) + 0.5f) * 0x1p-23f, 1.0f - 0x1p-24f);
  float highest = -kInfinity, lowest = kInfinity;
  for (std::uint32_t word = 0; word < (1u << 23); word += 16) {  // every u there is
    float u[16], g[16];
    for (std::uint32_t l = 0; l < 16; ++l) u[l] = (static_cast<float>(word + l) + 0.5f) * 0x1p-23f;
    gumbel(ScalarVec::load(u)).store(g);
    for (float v : g) highest = std::max(highest, v), lowest = std::min(lowest, v);
  }
  EXPECT_EQ(highest, largest);
  EXPECT_NEAR(largest, 24 * std::log(2.0), 1e-5);
  EXPECT_NEAR(lowest, -std::log(24 * std::log(2.0)), 1e-5);
}

// Skipping and sorting change nothing: the token is that of the definition, also where bounds and scores tie.
TEST(Sample, TokensAreThoseOfTheDefinition) {
  RandomSequence random(1, RandomStream::fuzz);
  for (InstructionSet isa : {InstructionSet::scalar, widest_instruction_set()})
    for (std::int64_t vocabulary : {1, 2, 15, 16, 17, 100, 512}) {
      std::vector<SampleRow> rows;
      for (int i = 0; i < 400; ++i) {
        const double spreads[] = {0, 0.1, 3, 20, 1e4, 1e30};
        SampleRow row = random_sample_row(random, vocabulary, spreads[i % 6]);
        if (i % 7 == 3)  // few values, so that many tokens are equal
          for (float& v : row.logits) v = std::round(v);
        if (i % 7 == 4) row.logits[random.below(static_cast<std::uint32_t>(vocabulary))] += 17;  // near the bound of the noise
        if (i % 7 == 5)                                                                          // so large that noise is rounded off: z + g ties
          for (float& v : row.logits) v = 1e9f + v;
        if (i % 7 == 6)
          for (float& v : row.logits) v = random.below(2) ? 0.0f : -0.0f;
        if (i % 2) add_filter(row, random);
        if (i % 11 == 0) row.temperature = 0;
        rows.push_back(row);
      }
      KernelBench b({.isa = isa, .threads = 2});
      const SampleResult got = run_sample(b, rows);
      for (std::size_t i = 0; i < rows.size(); ++i) {
        const SampleByHand want = sample_by_hand(rows[i]);
        ASSERT_EQ(got.token[i], want.token) << "vocabulary " << vocabulary << ", row " << i;
        ASSERT_EQ(got.flags[i], 0);
        if (want.kept.empty()) {
          ASSERT_EQ(float_bits(got.sampling[i]), float_bits(got.raw[i]));
        } else if (want.kept.size() < rows[i].logits.size()) {
          const float sum = want.z[static_cast<std::size_t>(want.kept[0])] + log_element<ScalarVec>(want.kept_chain);
          ASSERT_EQ(float_bits(got.sampling[i]), float_bits(want.z[static_cast<std::size_t>(want.token)] - sum)) << i;
        }
      }
    }
}

TEST(Sample, LogProbabilitiesAndKeptSetsMatchDouble) {
  RandomSequence random(2, RandomStream::fuzz);
  std::vector<SampleRow> rows;
  for (int i = 0; i < 600; ++i) {
    SampleRow row = random_sample_row(random, 130, 4);
    if (i % 3) add_filter(row, random);
    rows.push_back(row);
  }
  KernelBench b({.isa = std::nullopt, .threads = 2});
  const SampleResult got = run_sample(b, rows);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const SampleRow& row = rows[i];
    const auto log_softmax = [](const std::vector<double>& z, const std::vector<std::size_t>& kept, std::size_t id) {
      double m = -1e300, sum = 0;
      for (std::size_t v : kept) m = std::max(m, z[v]);
      for (std::size_t v : kept) sum += std::exp(z[v] - m);
      return z[id] - m - std::log(sum);
    };
    std::vector<double> logits = widened(row.logits), z = logits;
    for (double& v : z) v /= row.temperature;
    std::vector<std::size_t> all(z.size());
    std::iota(all.begin(), all.end(), 0u);
    std::vector<std::size_t> kept = all;
    std::stable_sort(kept.begin(), kept.end(), [&](std::size_t a, std::size_t c) { return z[a] > z[c]; });
    if (row.top_k > 0 && static_cast<std::size_t>(row.top_k) < kept.size()) kept.resize(static_cast<std::size_t>(row.top_k));
    if (row.top_p < 1) {
      double total = 0, sum = 0;
      for (std::size_t v : kept) total += std::exp(z[v] - z[kept[0]]);
      std::size_t count = 0;
      while (count < kept.size() && sum < row.top_p * total) sum += std::exp(z[kept[count++]] - z[kept[0]]);
      kept.resize(std::max<std::size_t>(count, 1));
      // A set whose border lies within rounding of p is not decided by double; these rows are far from it.
      if (std::fabs(sum - row.top_p * total) < 1e-5 * total) continue;
    }
    const auto token = static_cast<std::size_t>(got.token[i]);
    ASSERT_TRUE(std::find(kept.begin(), kept.end(), token) != kept.end()) << "row " << i << " chose a token outside its kept set";
    EXPECT_EQ(sample_by_hand(row).kept.size(), kept.size()) << i;
    EXPECT_NEAR(got.raw[i], log_softmax(logits, all, token), 1e-5) << i;
    EXPECT_NEAR(got.sampling[i], log_softmax(z, kept, token), 1e-5 * std::max(1.0, std::fabs(z[token]))) << i;
  }
}

// Chi-square over many seeds: the draws follow the softmax over the kept set.
TEST(Sample, Distribution) {
  RandomSequence random(3, RandomStream::fuzz);
  for (int variant = 0; variant < 4; ++variant) {
    SampleRow row = random_sample_row(random, 20, 1.5);
    row.temperature = variant % 2 ? 0.8f : 1.0f;
    if (variant >= 2) row.top_k = 12, row.top_p = 0.9f;
    const SampleByHand definition = sample_by_hand(row);
    constexpr int kDraws = 40000;
    std::vector<SampleRow> rows;
    for (int i = 0; i < kDraws; ++i) {
      // Seeds, positions and samples take their turns: each must give independent draws.
      if (variant == 0) row.seed = static_cast<std::uint64_t>(i);
      if (variant == 1) row.position = i;
      if (variant == 2) row.sample = i;
      if (variant == 3) row.seed = static_cast<std::uint64_t>(i) << 32;
      rows.push_back(row);
    }
    KernelBench b({.isa = std::nullopt, .threads = 2});
    const SampleResult got = run_sample(b, rows);
    std::vector<int> count(20, 0);
    for (std::int32_t token : got.token) ++count[static_cast<std::size_t>(token)];
    double total = 0, chi_square = 0;
    for (std::int32_t id : definition.kept) total += std::exp(static_cast<double>(definition.z[static_cast<std::size_t>(id)]));
    int inside = 0;
    for (std::int32_t id : definition.kept) {
      const double expected = kDraws * std::exp(static_cast<double>(definition.z[static_cast<std::size_t>(id)])) / total;
      chi_square += (count[static_cast<std::size_t>(id)] - expected) * (count[static_cast<std::size_t>(id)] - expected) / expected;
      inside += count[static_cast<std::size_t>(id)];
    }
    EXPECT_EQ(inside, kDraws) << "draws outside the kept set";
    // Mean n, standard deviation sqrt(2 n): five of them.
    const double freedom = static_cast<double>(definition.kept.size()) - 1;
    EXPECT_LT(chi_square, freedom + 5 * std::sqrt(2 * freedom)) << "variant " << variant;
  }
}

TEST(Sample, RawLogProbabilityHasTheTrainersBits) {
  RandomSequence random(4, RandomStream::fuzz);
  for (std::int64_t vocabulary : {15, 33, 100, 256, 512}) {
    constexpr std::int64_t kRows = 40, kInputs = 64;
    const std::int64_t panels = (vocabulary + 15) / 16;
    KernelBench b({.isa = std::nullopt, .threads = 2});
    PackedWeight w;
    w.outputs = vocabulary;
    w.inputs = kInputs;
    std::vector<float> packed = random_floats(panels * kInputs * 16, 5, -0.5, 0.5);
    w.data = b.floats(packed, 1, panels * kInputs * 16, DType::bf16);
    const View x = b.floats(random_floats(kRows * kInputs, 6, -3, 3), kRows, kInputs);
    std::vector<std::int32_t> index(kRows);
    std::iota(index.begin(), index.end(), 0);
    const View logits = b.junk(kRows, vocabulary);
    b.launch(&KernelTable::head_logits, HeadLogits{logits, x, b.ints(index, kRows), w});
    const std::vector<float> values = b.read(logits);
    std::vector<SampleRow> rows;
    for (std::int64_t i = 0; i < kRows; ++i) {
      SampleRow row = random_sample_row(random, 1, 1);
      row.logits.assign(values.begin() + i * vocabulary, values.begin() + (i + 1) * vocabulary);
      if (i % 2) row.temperature = 1;
      if (i % 4 >= 2) add_filter(row, random);
      rows.push_back(row);
    }
    const SampleResult sampled = run_sample(b, rows);
    HeadLoss score;
    score.logprob = b.junk(kRows, 1);
    score.flags = b.zeros(kRows, 1, DType::i32);
    score.x = x;
    score.w = w;
    score.target = b.ints(sampled.token, kRows);
    score.logits_chunk = b.junk(7, vocabulary);
    b.launch(&KernelTable::head_loss, score);
    expect_same_words(words_of(sampled.raw), words_of(b.read(score.logprob)), "vocabulary " + std::to_string(vocabulary));
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (rows[i].temperature == 1 && rows[i].top_k == 0 && rows[i].top_p == 1) {
        EXPECT_EQ(float_bits(sampled.sampling[i]), float_bits(sampled.raw[i])) << i;
      }
    }
  }
}

TEST(Sample, TheSameEverywhereAndWhateverRowsStandBeside) {
  RandomSequence random(7, RandomStream::fuzz);
  for (std::int64_t vocabulary : {1, 17, 100, 256}) {
    std::vector<SampleRow> rows;
    for (int i = 0; i < 30; ++i) {
      SampleRow row = random_sample_row(random, vocabulary, 3);
      if (i % 2) add_filter(row, random);
      if (i % 5 == 4) row.temperature = 0;
      rows.push_back(row);
    }
    expect_same_everywhere([&](KernelBench& b) {
      const Sample op = launch_of(b, rows);
      for (const View& v : {op.token, op.raw_logprob, op.sampling_logprob, op.flags}) b.record(v);
      const SampleResult all = {b.read_ints(op.token), {}, b.read(op.raw_logprob), b.read(op.sampling_logprob)};
      for (std::size_t i = 0; i < rows.size(); i += 7) {
        const SampleResult alone = run_sample(b, {rows[i]});
        EXPECT_EQ(alone.token[0], all.token[i]);
        EXPECT_EQ(float_bits(alone.raw[0]), float_bits(all.raw[i]));
        EXPECT_EQ(float_bits(alone.sampling[0]), float_bits(all.sampling[i]));
      }
    });
  }
}

// More tokens than ranks are counted for, few values, leaves of other counts, rows that are refused.
TEST(Sample, ManyTokensTiesAndRefusedRowsAreTheSameEverywhere) {
  RandomSequence random(9, RandomStream::fuzz);
  std::vector<SampleRow> rows;
  for (int i = 0; i < 24; ++i) {
    SampleRow row = random_sample_row(random, 1100, 3);
    if (i % 3 == 1)
      for (float& v : row.logits) v = std::round(v);
    if (i % 4 == 2) add_filter(row, random);
    if (i % 8 == 3) row.top_k = 1000;
    if (i % 8 == 7) row.top_p = 0.9f;
    if (i % 8 == 5) row.top_k = 7, row.top_p = 0.5f;
    if (i % 12 == 6) row.temperature = 0;
    rows.push_back(row);
  }
  rows[20].logits[1099] = std::numeric_limits<float>::quiet_NaN();
  rows[21].logits[3] = kInfinity;
  rows[22].logits.assign(1100, -kInfinity);
  rows[23].temperature = 1e-38f;  // z overflows
  for (SampleRow& row : rows)
    if (row.top_k == 1000) row.logits[0] = 0, row.logits[1] = -0.0f;
  expect_same_everywhere([&](KernelBench& b) {
    Sample op = launch_of(b, rows);
    for (const int leaves : {8, 1, 4}) {
      op.maximum_leaves = leaves;
      b.launch(&KernelTable::sample, op);
      for (const View& v : {op.token, op.raw_logprob, op.sampling_logprob, op.flags}) b.record(v);
    }
  });
}

TEST(Sample, NotANumberIsMarkedInItsRowAlone) {
  RandomSequence random(8, RandomStream::fuzz);
  std::vector<SampleRow> rows;
  for (int i = 0; i < 6; ++i) rows.push_back(random_sample_row(random, 40, 3));
  KernelBench b;
  const SampleResult before = run_sample(b, rows);
  rows[1].logits[39] = std::numeric_limits<float>::quiet_NaN();
  rows[2].logits[0] = kInfinity;
  rows[3].logits.assign(40, -kInfinity);
  rows[4].logits[7] = 5;
  rows[4].temperature = 1e-38f;  // z overflows
  const SampleResult after = run_sample(b, rows);
  EXPECT_EQ(after.flags, (std::vector<std::int32_t>{0, 8, 8, 8, 8, 0}));
  for (std::size_t i : {1, 2, 3, 4}) {
    EXPECT_EQ(after.token[i], -1);
    EXPECT_TRUE(std::isnan(after.raw[i]) && std::isnan(after.sampling[i]));
  }
  for (std::size_t i : {0, 5}) {
    EXPECT_EQ(after.token[i], before.token[i]);
    EXPECT_EQ(float_bits(after.raw[i]), float_bits(before.raw[i]));
  }
}

// A masked token (-infinity) is never drawn as long as its vocabulary leaf has another.
TEST(Sample, MaskedTokens) {
  std::vector<SampleRow> rows;
  for (int i = 0; i < 200; ++i) {
    SampleRow row;
    row.logits.assign(50, -kInfinity);
    row.logits[3] = row.logits[40] = 1;
    row.seed = static_cast<std::uint64_t>(i);
    row.top_k = i % 2 ? 0 : 30;
    rows.push_back(row);
  }
  KernelBench b;
  const SampleResult got = run_sample(b, rows);
  EXPECT_GT(std::count(got.token.begin(), got.token.end(), 3), 60);
  EXPECT_GT(std::count(got.token.begin(), got.token.end(), 40), 60);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    EXPECT_TRUE(got.token[i] == 3 || got.token[i] == 40);
    EXPECT_NEAR(got.sampling[i], -std::log(2.0), 1e-6);
  }
}

}  // namespace
}  // namespace lockstep
