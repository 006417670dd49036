// What is measured of selections (that the numbers are right is tests/oracle/test_index_share.py's): which layers and rows are counted, and that no bit
// depends on threads, instruction set or chunks.
#include "parity/index_overlap.h"

#include <gtest/gtest.h>

#include "base/philox.h"
#include "engine/engine_test_tools.h"

namespace lockstep {
namespace {

std::vector<std::vector<std::int32_t>> overlap_texts(std::uint64_t seed, const std::vector<std::int64_t>& lengths) {
  RandomSequence draws(seed, RandomStream::fuzz);
  std::vector<std::vector<std::int32_t>> texts;
  for (const std::int64_t length : lengths) texts.push_back(random_tokens(draws, length, 101));
  return texts;
}
std::string overlap_of(const std::vector<std::vector<std::int32_t>>& texts, const BackendOptions& backend, std::int64_t rows_at_once = 256) {
  Plant plant("sharing", "cpu-bf16w", backend);
  return to_json(measure_index_overlap(plant.runtime, *plant.weights, texts, {}, rows_at_once)).dump();
}

TEST(IndexOverlap, CountsRowsThatLeaveKeysOutAndEveryLayer) {
  Plant plant;  // selects 5 keys; layers 0, 1, 2, 6, 10 of 11 have an indexer
  const IndexOverlap overlap = measure_index_overlap(plant.runtime, *plant.weights, overlap_texts(3, {31, 4, 7}));
  EXPECT_EQ(overlap.top_k, 5);
  EXPECT_EQ(overlap.sequences, 3);
  EXPECT_EQ(overlap.tokens, 42);
  EXPECT_EQ(overlap.rows, 26 + 2);
  ASSERT_EQ(overlap.layers.size(), 11u);
  const int selects[] = {0, 1, 2, 2, 2, 2, 6, 6, 6, 6, 10};
  for (int layer = 0; layer < 11; ++layer) {
    const IndexOverlap::Layer& l = overlap.layers[static_cast<std::size_t>(layer)];
    EXPECT_EQ(l.layer, layer);
    EXPECT_EQ(l.selects, selects[layer]);
    EXPECT_GT(l.mass, 0.0);
    EXPECT_LT(l.mass, 1.0);
    EXPECT_GT(l.mass, l.least_head);
  }
  ASSERT_EQ(overlap.pairs.size(), 10u);
  std::int64_t pairs = 0;
  for (const IndexOverlap::Distance& d : overlap.distances) pairs += d.pairs;
  EXPECT_EQ(pairs, 10);
  EXPECT_EQ(overlap.distances.front().distance, 1);
  EXPECT_EQ(overlap.distances.front().pairs, 2);
  EXPECT_EQ(plant.runtime.observer, nullptr);
}

TEST(IndexOverlap, NoBitDependsOnThreadsInstructionSetOrChunks) {
  const auto texts = overlap_texts(4, {33, 20});
  const std::string expected = overlap_of(texts, {.threads = 1});
  EXPECT_EQ(overlap_of(texts, {.threads = 3}), expected);
  EXPECT_EQ(overlap_of(texts, {.isa = InstructionSet::scalar, .threads = 2}), expected);
  EXPECT_EQ(overlap_of(texts, {.threads = 2}, 7), expected);
  EXPECT_EQ(overlap_of(texts, {.kind = BackendKind::deferred, .threads = 2}), expected);
  EXPECT_NE(overlap_of(overlap_texts(5, {33, 20}), {.threads = 1}), expected);  // the control
}

TEST(IndexOverlap, SaysWhatItNeeds) {
  const auto refusal = [](const std::string& config, const std::vector<std::vector<std::int32_t>>& texts) -> std::string {
    Plant plant(config);
    try {
      measure_index_overlap(plant.runtime, *plant.weights, texts);
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_NE(refusal("sharing", overlap_texts(6, {5, 3})).find("the longest sequence has 5 tokens"), std::string::npos);
  EXPECT_EQ(refusal("sharing", overlap_texts(6, {6})), "");
}

}  // namespace
}  // namespace lockstep
