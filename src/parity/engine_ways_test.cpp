#include "parity/engine_ways.h"

#include <gtest/gtest.h>

#include "base/philox.h"
#include "engine/engine_test_tools.h"

namespace lockstep {
namespace {

TEST(EngineWays, AllGiveTheSameBits) {
  Plant plant("wide");
  Engine engine(plant.runtime, plant.weights, {.page_size = 4, .cache_pages = 40, .max_batch_rows = 128, .prefill_chunk = 16});
  RandomSequence draws(5, RandomStream::fuzz);
  for (int round = 0; round < 4; ++round) {
    const std::vector<std::int32_t> tokens = random_tokens(draws, 30 + 7 * round, plant.runtime.model->facts().vocabulary);
    const std::vector<float> expected = engine_score(engine, tokens);
    ASSERT_EQ(expected.size(), tokens.size() - 1);
    for (ScoreKind kind : {ScoreKind::prefill, ScoreKind::chunked, ScoreKind::decode, ScoreKind::prefix, ScoreKind::preempted})
      for (std::int32_t neighbours : {0, 5})
        EXPECT_EQ(different_bits(engine_score(engine, tokens, {.kind = kind, .seed = static_cast<std::uint64_t>(round), .neighbours = neighbours}), expected),
                  0u)
            << score_kind_name(kind) << " neighbours " << neighbours;
    EXPECT_TRUE(engine.idle());
  }
  const EngineCounters& c = engine.counters();
  EXPECT_GT(c.chunks, 0);
  EXPECT_GT(c.decode_tokens, 0);
  EXPECT_GT(c.cache_hit_tokens, 0);
  EXPECT_GT(c.preemptions, 0);
  EXPECT_GT(c.mixed_batches, 0);
  EXPECT_GT(c.work.pairs_skipped(), 0);
  EXPECT_EQ(c.work.fault(), "");
}

// A snapshot's weights on the way through the prefix cache, whose pages are theirs alone.
TEST(EngineWays, WeightsOfARequestsOwn) {
  Plant plant, other("sharing", "cpu-bf16w", {.threads = 2}, 128, 8);
  const auto own = make_weight_set(plant.runtime.backend, plant.runtime.model->manifest(), other.images, plant.runtime.profile, 2);
  RandomSequence draws(6, RandomStream::fuzz);
  const std::vector<std::int32_t> tokens = random_tokens(draws, 40, plant.runtime.model->facts().vocabulary);
  Engine engine(plant.runtime, plant.weights, {.page_size = 4}), alone(plant.runtime, own);
  const std::vector<float> expected = engine_score(alone, tokens);
  EXPECT_GT(different_bits(engine_score(engine, tokens), expected), 0u);
  for (const ScoreKind kind : {ScoreKind::prefix, ScoreKind::preempted})
    EXPECT_EQ(different_bits(engine_score(engine, tokens, {.kind = kind, .seed = 3, .neighbours = 2, .weights = own}), expected), 0u) << score_kind_name(kind);
}

}  // namespace
}  // namespace lockstep
