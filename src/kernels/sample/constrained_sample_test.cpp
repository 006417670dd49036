// Sampling with masks, adjusted logits and min-p: against the definition in double and worked examples; rows without any of it
// keep their bits.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "kernels/kernel_test_tools.h"
#include "kernels/launch.h"
#include "numerics/elementary.h"
#include "numerics/isa/scalar.h"

namespace lockstep {
namespace {

struct ConstrainedRow {
  std::vector<float> logits, adjusted;  // adjusted empty: none
  std::vector<bool> allowed;            // empty: all
  float temperature = 1, top_p = 1, min_p = 0;
  std::int32_t top_k = 0;
  std::uint64_t seed = 0;
  std::int32_t sample = 0, position = 0, chosen = -1;
  RandomStream stream = RandomStream::sampling;
};

Sample launch_constrained(KernelBench& b, const std::vector<ConstrainedRow>& rows) {
  const auto n = static_cast<std::int64_t>(rows.size()), vocabulary = static_cast<std::int64_t>(rows[0].logits.size());
  std::vector<float> logits, adjusted, temperature, top_p, min_p;
  std::vector<std::int32_t> top_k, seed, sample, position, adjusted_row, mask_row, masks, stream, chosen;
  std::int32_t adjusted_rows = 0, mask_rows = 0;
  for (const ConstrainedRow& r : rows) {
    logits.insert(logits.end(), r.logits.begin(), r.logits.end());
    temperature.push_back(r.temperature);
    top_p.push_back(r.top_p);
    min_p.push_back(r.min_p);
    top_k.push_back(r.top_k);
    seed.push_back(static_cast<std::int32_t>(r.seed));
    seed.push_back(static_cast<std::int32_t>(r.seed >> 32));
    sample.push_back(r.sample);
    position.push_back(r.position);
    stream.push_back(static_cast<std::int32_t>(r.stream));
    chosen.push_back(r.chosen);
    adjusted_row.push_back(r.adjusted.empty() ? -1 : adjusted_rows++);
    adjusted.insert(adjusted.end(), r.adjusted.begin(), r.adjusted.end());
    mask_row.push_back(r.allowed.empty() ? -1 : mask_rows++);
    if (r.allowed.empty()) continue;
    std::vector<std::uint32_t> words(static_cast<std::size_t>((vocabulary + 31) / 32), 0);
    // Bits beyond the vocabulary mean nothing.
    if (vocabulary % 32) words.back() = ~0u << (vocabulary % 32);
    for (std::size_t v = 0; v < r.allowed.size(); ++v)
      if (r.allowed[v]) words[v / 32] |= 1u << v % 32;
    for (std::uint32_t w : words) masks.push_back(static_cast<std::int32_t>(w));
  }
  Sample op;
  op.token = b.zeros(n, 1, DType::i32);
  op.raw_logprob = b.junk(n, 1);
  op.sampling_logprob = b.junk(n, 1);
  op.flags = b.zeros(n, 1, DType::i32);
  op.logits = b.floats(logits, n, vocabulary);
  op.temperature = b.floats(temperature, n, 1);
  op.top_p = b.floats(top_p, n, 1);
  op.min_p = b.floats(min_p, n, 1);
  op.top_k = b.ints(top_k, n);
  op.seed = b.ints(seed, n, 2);
  op.sample = b.ints(sample, n);
  op.position = b.ints(position, n);
  const auto draws = [](const ConstrainedRow& r) { return r.stream == RandomStream::sampling; };
  if (!std::all_of(rows.begin(), rows.end(), draws)) op.stream = b.ints(stream, n);
  if (std::any_of(rows.begin(), rows.end(), [](const ConstrainedRow& r) { return r.chosen >= 0; })) op.chosen = b.ints(chosen, n);
  if (adjusted_rows > 0) {
    op.adjusted = b.floats(adjusted, adjusted_rows, vocabulary);
    op.adjusted_row = b.ints(adjusted_row, n);
  }
  if (mask_rows > 0) {
    op.mask = b.ints(masks, mask_rows, (vocabulary + 31) / 32);
    op.mask_row = b.ints(mask_row, n);
  }
  b.launch(&KernelTable::sample, op);
  return op;
}
struct ConstrainedResult {
  std::vector<std::int32_t> token, flags;
  std::vector<float> raw, sampling;
};
ConstrainedResult run_constrained(KernelBench& b, const std::vector<ConstrainedRow>& rows) {
  const Sample op = launch_constrained(b, rows);
  return {b.read_ints(op.token), b.read_ints(op.flags), b.read(op.raw_logprob), b.read(op.sampling_logprob)};
}

float constrained_noise(const ConstrainedRow& row, std::uint32_t id) {
  const Philox::Words words = Philox::generate(
      row.seed, {id / 4, static_cast<std::uint32_t>(row.position), static_cast<std::uint32_t>(row.sample), static_cast<std::uint32_t>(row.stream)});
  const float u = (static_cast<float>(words[id % 4] >> 9) + 0.5f) * 0x1p-23f;
  return 0.0f - log_element<ScalarVec>(0.0f - log_element<ScalarVec>(u));
}

// The kept set and the token of the definition; log-probabilities in double.
struct ConstrainedByHand {
  std::int32_t token = -1;
  std::vector<std::int32_t> kept;
  double raw = 0, sampling = 0;
};
ConstrainedByHand constrained_by_hand(const ConstrainedRow& row) {
  ConstrainedByHand out;
  std::vector<float> z = row.adjusted.empty() ? row.logits : row.adjusted;
  if (row.temperature > 0)
    for (float& v : z) v /= row.temperature;
  std::vector<std::int32_t> allowed;
  for (std::size_t v = 0; v < z.size(); ++v)
    if (row.allowed.empty() || row.allowed[v]) allowed.push_back(static_cast<std::int32_t>(v));
  if (allowed.empty()) return out;
  const auto logprob = [](const std::vector<float>& x, const std::vector<std::int32_t>& over, std::int32_t id) {
    double m = -1e300, sum = 0;
    for (std::int32_t v : over) m = std::max(m, static_cast<double>(x[static_cast<std::size_t>(v)]));
    for (std::int32_t v : over) sum += std::exp(x[static_cast<std::size_t>(v)] - m);
    return x[static_cast<std::size_t>(id)] - m - std::log(sum);
  };
  const auto at = [&](std::int32_t id) { return z[static_cast<std::size_t>(id)]; };
  out.kept = allowed;
  std::stable_sort(out.kept.begin(), out.kept.end(), [&](std::int32_t a, std::int32_t b) { return at(a) > at(b); });
  if (!(row.temperature > 0)) {
    out.token = out.kept[0];
    out.raw = out.sampling = logprob(row.logits, allowed, out.token);
    return out;
  }
  if (row.top_k > 0 && row.top_k < static_cast<std::int32_t>(out.kept.size())) out.kept.resize(static_cast<std::size_t>(row.top_k));
  std::vector<float> p, chain;
  float sum = 0;
  for (std::int32_t id : out.kept) p.push_back(exp_element<ScalarVec>(at(id) - at(out.kept[0]))), chain.push_back(sum = sum + p.back());
  std::size_t kept = out.kept.size();
  if (row.top_p < 1)
    for (kept = 1; chain[kept - 1] < row.top_p * sum;) ++kept;
  std::size_t likely = 1;
  while (likely < kept && p[likely] >= row.min_p) ++likely;
  out.kept.resize(likely);
  float best = -std::numeric_limits<float>::infinity();
  std::vector<std::int32_t> ascending = out.kept;
  std::sort(ascending.begin(), ascending.end());
  for (std::int32_t id : ascending)
    if (const float score = at(id) + constrained_noise(row, static_cast<std::uint32_t>(id)); score > best) best = score, out.token = id;
  out.raw = logprob(row.logits, allowed, out.token);
  out.sampling = logprob(z, out.kept, out.token);
  return out;
}

ConstrainedRow random_constrained_row(RandomSequence& random, std::int64_t vocabulary) {
  ConstrainedRow row;
  row.logits = random_floats(vocabulary, random.next(), -6, 6);
  row.seed = static_cast<std::uint64_t>(random.next()) << 32 | random.next();
  row.sample = static_cast<std::int32_t>(random.below(8));
  row.position = static_cast<std::int32_t>(random.below(100000));
  if (random.below(4) == 0) row.stream = RandomStream::draft;
  constexpr float kTemperatures[] = {0, 1, 1, 0.7f, 1.5f};
  row.temperature = kTemperatures[random.below(5)];
  if (random.below(3) == 0) row.top_k = static_cast<std::int32_t>(1 + random.below(static_cast<std::uint32_t>(vocabulary) + 2));
  if (random.below(3) == 0) row.top_p = static_cast<float>(random.uniform());
  if (random.below(3) == 0) row.min_p = static_cast<float>(random.uniform() * 0.3);
  if (random.below(2)) {
    const std::uint32_t one_in = 1 + random.below(20);
    for (std::int64_t v = 0; v < vocabulary; ++v) row.allowed.push_back(random.below(one_in) == 0);
    row.allowed[random.below(static_cast<std::uint32_t>(vocabulary))] = true;
  }
  if (random.below(2)) {
    row.adjusted = row.logits;
    for (int i = 0; i < 5; ++i) row.adjusted[random.below(static_cast<std::uint32_t>(vocabulary))] += static_cast<float>(random.uniform() * 20 - 10);
  }
  return row;
}

TEST(ConstrainedSample, TokensAndLogProbabilitiesAreThoseOfTheDefinition) {
  RandomSequence random(1, RandomStream::fuzz);
  for (InstructionSet isa : {InstructionSet::scalar, widest_instruction_set()})
    for (std::int64_t vocabulary : {1, 15, 17, 32, 33, 100, 512}) {
      std::vector<ConstrainedRow> rows;
      for (int i = 0; i < 300; ++i) rows.push_back(random_constrained_row(random, vocabulary));
      KernelBench b({.isa = isa, .threads = 2});
      const ConstrainedResult got = run_constrained(b, rows);
      for (std::size_t i = 0; i < rows.size(); ++i) {
        const ConstrainedByHand want = constrained_by_hand(rows[i]);
        ASSERT_EQ(got.token[i], want.token) << "vocabulary " << vocabulary << ", row " << i;
        ASSERT_EQ(got.flags[i], 0);
        ASSERT_NEAR(got.raw[i], want.raw, 2e-5) << i;
        ASSERT_NEAR(got.sampling[i], want.sampling, 4e-5) << i;
      }
    }
}

// A token that is chosen has the log-probabilities it has where it is drawn, to the bit, whatever the noise would have drawn; with noise of another stream
// rows draw other tokens.
TEST(ConstrainedSample, WhatIsChosenIsToldAsIfItHadBeenDrawn) {
  RandomSequence random(5, RandomStream::fuzz);
  for (const auto& [kind, isa] : {std::pair(BackendKind::cpu, widest_instruction_set()), std::pair(BackendKind::emulated, InstructionSet::scalar)})
    for (const std::int64_t vocabulary : {17, 100}) {
      std::vector<ConstrainedRow> rows;
      for (int i = 0; i < 200; ++i) rows.push_back(random_constrained_row(random, vocabulary));
      KernelBench b({.kind = kind, .isa = isa, .threads = 2});
      const ConstrainedResult drawn = run_constrained(b, rows);
      std::vector<ConstrainedRow> other = rows;
      for (ConstrainedRow& row : other) ++row.seed;
      const ConstrainedResult otherwise = run_constrained(b, other);
      for (std::size_t i = 0; i < rows.size(); ++i)
        if (i % 3 > 0) other[i].chosen = drawn.token[i];
      const ConstrainedResult chosen = run_constrained(b, other);
      int differ = 0;
      for (std::size_t i = 0; i < rows.size(); ++i) {
        const ConstrainedResult& want = i % 3 > 0 ? drawn : otherwise;
        differ += otherwise.token[i] != drawn.token[i];
        ASSERT_EQ(chosen.token[i], want.token[i]) << i;
        ASSERT_EQ(float_bits(chosen.raw[i]), float_bits(want.raw[i])) << i;
        ASSERT_EQ(float_bits(chosen.sampling[i]), float_bits(want.sampling[i])) << i;
      }
      EXPECT_GT(differ, 30);  // so that what was chosen is not what is drawn
    }
}

// A mask of everything, an adjustment of nothing and min_p of 0 are no mask, no adjustment and no min_p, to the bit.
TEST(ConstrainedSample, WhatRestrictsNothingChangesNoBit) {
  RandomSequence random(2, RandomStream::fuzz);
  std::vector<ConstrainedRow> plain, idle;
  for (int i = 0; i < 200; ++i) {
    ConstrainedRow row = random_constrained_row(random, 77);
    row.allowed.clear();
    row.adjusted.clear();
    row.min_p = 0;
    plain.push_back(row);
    if (i % 2) row.allowed.assign(77, true);
    if (i % 4 >= 2) row.adjusted = row.logits;
    idle.push_back(row);
  }
  KernelBench b;
  const ConstrainedResult a = run_constrained(b, plain), c = run_constrained(b, idle);
  EXPECT_EQ(a.token, c.token);
  expect_same_words(words_of(c.raw), words_of(a.raw), "raw");
  expect_same_words(words_of(c.sampling), words_of(a.sampling), "sampling");
}

TEST(ConstrainedSample, NothingAllowedIsMarkedInItsRowAlone) {
  RandomSequence random(3, RandomStream::fuzz);
  std::vector<ConstrainedRow> rows;
  for (int i = 0; i < 5; ++i) rows.push_back(random_constrained_row(random, 40));
  KernelBench b;
  rows[2].allowed.assign(40, true);
  const ConstrainedResult before = run_constrained(b, rows);
  rows[2].allowed.assign(40, false);
  const ConstrainedResult after = run_constrained(b, rows);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(after.flags[i], i == 2 ? 1 << 4 : 0);
    EXPECT_EQ(after.token[i], i == 2 ? -1 : before.token[i]);
    if (i == 2) continue;
    EXPECT_EQ(float_bits(after.sampling[i]), float_bits(before.sampling[i]));
  }
  // What is not finite counts only where it is allowed.
  rows[2].allowed[3] = true;
  rows[2].adjusted.clear();
  rows[2].logits[4] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(run_constrained(b, rows).token[2], 3);
  EXPECT_EQ(run_constrained(b, rows).raw[2], 0);
}

TEST(ConstrainedSample, TheSameEverywhereAndWhateverRowsStandBeside) {
  RandomSequence random(4, RandomStream::fuzz);
  for (std::int64_t vocabulary : {17, 100, 256}) {
    std::vector<ConstrainedRow> rows;
    for (int i = 0; i < 30; ++i) rows.push_back(random_constrained_row(random, vocabulary));
    expect_same_everywhere([&](KernelBench& b) {
      const Sample op = launch_constrained(b, rows);
      for (const View& v : {op.token, op.raw_logprob, op.sampling_logprob, op.flags}) b.record(v);
      const ConstrainedResult all = {b.read_ints(op.token), {}, b.read(op.raw_logprob), b.read(op.sampling_logprob)};
      for (std::size_t i = 0; i < rows.size(); i += 4) {
        const ConstrainedResult alone = run_constrained(b, {rows[i]});
        EXPECT_EQ(alone.token[0], all.token[i]);
        EXPECT_EQ(float_bits(alone.raw[0]), float_bits(all.raw[i]));
        EXPECT_EQ(float_bits(alone.sampling[0]), float_bits(all.sampling[i]));
      }
    });
  }
}

}  // namespace
}  // namespace lockstep
