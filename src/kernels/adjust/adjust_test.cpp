// Penalties and biases against doubles; tokens without an entry keep their bits.
#include "kernels/adjust/adjust.h"

#include <gtest/gtest.h>

#include <map>

#include "kernels/kernel_test_tools.h"
#include "kernels/launch.h"

namespace lockstep {
namespace {

struct Entry {
  std::int32_t count = 0, seen = 0;
  float bias = 0;
};
struct AdjustedRow {
  std::int32_t of = 0;
  float repetition = 1, presence = 0, frequency = 0;
  std::map<std::int32_t, Entry> entries;
};

std::vector<AdjustedRow> random_rows(RandomSequence& random, int count, std::int64_t logit_rows, std::int64_t vocabulary) {
  std::vector<AdjustedRow> rows(static_cast<std::size_t>(count));
  for (AdjustedRow& r : rows) {
    r.of = static_cast<std::int32_t>(random.below(static_cast<std::uint32_t>(logit_rows)));
    if (random.below(2)) r.repetition = static_cast<float>(0.5 + random.uniform());
    if (random.below(2)) r.presence = static_cast<float>(random.uniform() * 4 - 2);
    if (random.below(2)) r.frequency = static_cast<float>(random.uniform() * 4 - 2);
    for (std::uint32_t i = random.below(12); i > 0; --i) {
      Entry& e = r.entries[static_cast<std::int32_t>(random.below(static_cast<std::uint32_t>(vocabulary)))];
      e.count = static_cast<std::int32_t>(random.below(4));
      e.seen = e.count > 0 || random.below(2);
      if (random.below(2)) e.bias = static_cast<float>(random.uniform() * 200 - 100);
    }
  }
  return rows;
}

View launch_adjust(KernelBench& b, const std::vector<float>& logits, std::int64_t vocabulary, const std::vector<AdjustedRow>& rows) {
  std::vector<std::int32_t> row, begin{0}, token, count, seen;
  std::vector<float> repetition, presence, frequency, bias;
  for (const AdjustedRow& r : rows) {
    row.push_back(r.of);
    repetition.push_back(r.repetition);
    presence.push_back(r.presence);
    frequency.push_back(r.frequency);
    for (const auto& [id, e] : r.entries) {
      token.push_back(id);
      count.push_back(e.count);
      seen.push_back(e.seen);
      bias.push_back(e.bias);
    }
    begin.push_back(static_cast<std::int32_t>(token.size()));
  }
  const auto n = static_cast<std::int64_t>(rows.size()), entries = static_cast<std::int64_t>(token.size());
  AdjustLogits op;
  op.y = b.junk(n, vocabulary);
  op.logits = b.floats(logits, static_cast<std::int64_t>(logits.size()) / vocabulary, vocabulary);
  op.row = b.ints(row, n);
  op.begin = b.ints(begin, n + 1);
  op.repetition = b.floats(repetition, n, 1);
  op.presence = b.floats(presence, n, 1);
  op.frequency = b.floats(frequency, n, 1);
  op.token = b.ints(token, entries);
  op.count = b.ints(count, entries);
  op.seen = b.ints(seen, entries);
  op.bias = b.floats(bias, entries, 1);
  b.launch(&KernelTable::adjust_logits, op);
  return op.y;
}

TEST(AdjustLogits, MatchesDoubleAndLeavesOtherTokensAlone) {
  RandomSequence random(1, RandomStream::fuzz);
  for (std::int64_t vocabulary : {1, 15, 17, 33, 200}) {
    const std::vector<float> logits = random_floats(5 * vocabulary, 2, -10, 10);
    const std::vector<AdjustedRow> rows = random_rows(random, 40, 5, vocabulary);
    KernelBench b;
    const std::vector<float> got = b.read(launch_adjust(b, logits, vocabulary, rows));
    int adjusted = 0;
    for (std::size_t r = 0; r < rows.size(); ++r)
      for (std::int64_t v = 0; v < vocabulary; ++v) {
        const float logit = logits[static_cast<std::size_t>(rows[r].of * vocabulary + v)];
        const float y = got[r * static_cast<std::size_t>(vocabulary) + static_cast<std::size_t>(v)];
        const auto it = rows[r].entries.find(static_cast<std::int32_t>(v));
        if (it == rows[r].entries.end()) {
          ASSERT_EQ(float_bits(y), float_bits(logit));
          continue;
        }
        double x = logit;
        if (it->second.seen) x = x > 0 ? x / rows[r].repetition : x * rows[r].repetition;
        x -= static_cast<double>(it->second.count) * rows[r].frequency;
        if (it->second.count > 0) x -= rows[r].presence;
        ASSERT_NEAR(y, x + it->second.bias, 1e-5 * 120) << "row " << r << ", token " << v;
        adjusted += y != logit;
      }
    EXPECT_GT(adjusted, 0) << vocabulary;
  }
}

TEST(AdjustLogits, TheSameEverywhereAndWhateverRowsStandBeside) {
  RandomSequence random(3, RandomStream::fuzz);
  const std::vector<float> logits = random_floats(4 * 33, 4, -10, 10);
  const std::vector<AdjustedRow> rows = random_rows(random, 20, 4, 33);
  expect_same_everywhere([&](KernelBench& b) {
    const View y = launch_adjust(b, logits, 33, rows);
    b.record(y);
    const std::vector<float> all = b.read(y);
    for (std::size_t r = 0; r < rows.size(); r += 3)
      expect_same_words(words_of(b.read(launch_adjust(b, logits, 33, {rows[r]}))),
                        words_of({all.begin() + static_cast<std::ptrdiff_t>(r * 33), all.begin() + static_cast<std::ptrdiff_t>(r * 33 + 33)}),
                        "row " + std::to_string(r));
  });
}

}  // namespace
}  // namespace lockstep
