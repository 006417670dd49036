// Top tokens against a full sort, with and without a mask; their log-probabilities are the sampler's raw ones.
#include "kernels/top/top.h"
#include "kernels/launch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "kernels/kernel_test_tools.h"

namespace lockstep {
namespace {

constexpr std::int64_t kMost = 20;

struct TopCase {
  std::int64_t vocabulary = 0;
  std::vector<float> logits;             // rows x vocabulary
  std::vector<std::int32_t> row, count;  // asked for
  std::vector<std::int32_t> mask_row;
  std::vector<std::int32_t> masks;

  TopCase(RandomSequence& random, std::int64_t v, std::int64_t rows) : vocabulary(v) {
    logits = random_floats(rows * v, random.next(), -5, 5);
    for (std::size_t i = 0; i < logits.size(); i += 3) logits[i] = std::round(logits[i]);  // so that some are equal
    const std::int64_t width = (v + 31) / 32;
    for (std::int64_t i = 0; i < 3 * width; ++i) masks.push_back(static_cast<std::int32_t>(i < width ? ~0u : random.next() & random.next()));
    for (std::int64_t i = 0; i < 2 * rows; ++i) {
      row.push_back(static_cast<std::int32_t>(random.below(static_cast<std::uint32_t>(rows))));
      count.push_back(static_cast<std::int32_t>(random.below(kMost + 1)));
      mask_row.push_back(static_cast<std::int32_t>(random.below(4)) - 1);
    }
  }
  bool allows(std::size_t item, std::int64_t token) const {
    if (mask_row[item] < 0) return true;
    return static_cast<std::uint32_t>(masks[static_cast<std::size_t>(mask_row[item] * ((vocabulary + 31) / 32) + token / 32)]) >> token % 32 & 1;
  }
};

TopTokens launch_top(KernelBench& b, const TopCase& c) {
  TopTokens op;
  const auto items = static_cast<std::int64_t>(c.row.size()), width = (c.vocabulary + 31) / 32;
  op.id = b.zeros(items, kMost, DType::i32);
  op.logprob = b.junk(items, kMost);
  op.logits = b.floats(c.logits, static_cast<std::int64_t>(c.logits.size()) / c.vocabulary, c.vocabulary);
  op.row = b.ints(c.row, items);
  op.count = b.ints(c.count, items);
  op.mask = b.ints(c.masks, static_cast<std::int64_t>(c.masks.size()) / width, width);
  op.mask_row = b.ints(c.mask_row, items);
  b.launch(&KernelTable::top_tokens, op);
  return op;
}

TEST(TopTokens, AreThoseOfAFullSort) {
  RandomSequence random(1, RandomStream::fuzz);
  for (std::int64_t vocabulary : {1, 2, 15, 31, 33, 100, 600}) {
    const TopCase c(random, vocabulary, 30);
    KernelBench b;
    const TopTokens op = launch_top(b, c);
    const std::vector<std::int32_t> id = b.read_ints(op.id);
    const std::vector<float> logprob = b.read(op.logprob);
    for (std::size_t i = 0; i < c.row.size(); ++i) {
      const float* z = c.logits.data() + c.row[i] * vocabulary;
      std::vector<std::int32_t> order;
      double sum = 0;
      for (std::int64_t v = 0; v < vocabulary; ++v)
        if (c.allows(i, v)) order.push_back(static_cast<std::int32_t>(v)), sum += std::exp(static_cast<double>(z[v]));
      std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t d) { return z[a] > z[d]; });
      order.resize(std::min(order.size(), static_cast<std::size_t>(c.count[i])));
      for (std::size_t j = 0; j < kMost; ++j) {
        const std::size_t at = i * kMost + j;
        ASSERT_EQ(id[at], j < order.size() ? order[j] : -1) << "vocabulary " << vocabulary << ", item " << i << ", place " << j;
        ASSERT_NEAR(logprob[at], j < order.size() ? z[order[j]] - std::log(sum) : 0, 1e-5);
      }
    }
  }
}

TEST(TopTokens, LogProbabilitiesHaveTheSamplersBits) {
  RandomSequence random(2, RandomStream::fuzz);
  const TopCase c(random, 300, 20);
  KernelBench b;
  const TopTokens op = launch_top(b, c);
  const auto items = static_cast<std::int64_t>(c.row.size());
  std::vector<float> logits;
  for (std::int32_t r : c.row) logits.insert(logits.end(), c.logits.begin() + r * 300, c.logits.begin() + (r + 1) * 300);
  Sample greedy;
  greedy.token = b.zeros(items, 1, DType::i32);
  greedy.raw_logprob = b.junk(items, 1);
  greedy.sampling_logprob = b.junk(items, 1);
  greedy.flags = b.zeros(items, 1, DType::i32);
  greedy.logits = b.floats(logits, items, 300);
  greedy.temperature = b.zeros(items, 1);
  greedy.top_p = b.zeros(items, 1);
  greedy.top_k = b.zeros(items, 1, DType::i32);
  greedy.seed = b.zeros(items, 2, DType::i32);
  greedy.sample = greedy.position = b.zeros(items, 1, DType::i32);
  greedy.mask = op.mask;
  greedy.mask_row = op.mask_row;
  b.launch(&KernelTable::sample, greedy);
  const std::vector<std::int32_t> id = b.read_ints(op.id), token = b.read_ints(greedy.token);
  const std::vector<float> logprob = b.read(op.logprob), raw = b.read(greedy.raw_logprob);
  int compared = 0;
  for (std::size_t i = 0; i < c.row.size(); ++i) {
    if (c.count[i] == 0) continue;
    EXPECT_EQ(id[i * kMost], token[i]);
    EXPECT_EQ(float_bits(logprob[i * kMost]), float_bits(raw[i]));
    ++compared;
  }
  EXPECT_GT(compared, 20);
}

TEST(TopTokens, TheSameEverywhere) {
  RandomSequence random(3, RandomStream::fuzz);
  for (std::int64_t vocabulary : {1, 17, 100, 600}) {
    TopCase c(random, vocabulary, 6);
    c.logits[0] = 0, c.logits[c.logits.size() - 1] = -0.0f;
    c.logits[static_cast<std::size_t>(2 * vocabulary)] = std::numeric_limits<float>::quiet_NaN();
    expect_same_everywhere([&](KernelBench& b) {
      const TopTokens op = launch_top(b, c);
      b.record(op.id);
      b.record(op.logprob);
    });
  }
}

TEST(TopTokens, ARowThatIsNotFiniteHasNone) {
  RandomSequence random(4, RandomStream::fuzz);
  TopCase c(random, 40, 3);
  c.logits[40 + 7] = std::numeric_limits<float>::quiet_NaN();
  c.row = {0, 1, 2};
  c.count = {5, 5, 5};
  c.mask_row = {-1, -1, -1};
  KernelBench b;
  const std::vector<std::int32_t> id = b.read_ints(launch_top(b, c).id);
  EXPECT_GE(id[0], 0);
  EXPECT_EQ(id[kMost], -1);
  EXPECT_GE(id[2 * kMost], 0);
}

}  // namespace
}  // namespace lockstep
