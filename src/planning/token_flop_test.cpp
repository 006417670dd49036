// Arithmetic of a token by hand, and the published ratio of GLM-5.2's shared indexers.
#include "planning/token_flop.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "planning/memory_plan.h"

namespace lockstep {
namespace {
std::vector<TokenFlop> forms_of(const char* model, std::int64_t context) {
  return token_flop(planned_config({.model = planned_name(model)}), profile_by_name("cpu-bf16w"), context);
}

// models/countdown-glm: 4 layers of 4 heads, entries of 32 + 16, 4 keys selected, two indexers of 4 x 16.
TEST(TokenFlop, OfASmallModelByHand) {
  const std::vector<TokenFlop> forms = forms_of("models/countdown-glm", 100);
  ASSERT_EQ(forms.size(), 3u);
  const TokenFlop &dense = forms[0], &every = forms[1], &own = forms[2];
  EXPECT_EQ(dense.attention, 4 * 4 * 100 * 2 * (48 + 32));
  EXPECT_EQ(own.attention, 4 * 4 * 4 * 2 * (48 + 32));
  EXPECT_EQ(every.attention, own.attention);
  EXPECT_EQ(std::vector({dense.index_scores, every.index_scores, own.index_scores}), std::vector({0.0, 2.0 * 100 * 4 * 64, 2.0 * 100 * 2 * 64}));
  EXPECT_EQ(std::vector({dense.indexers, every.indexers, own.indexers}), (std::vector<std::int64_t>{0, 4, 2}));
  const double indexer = 2 * (64 * 48 + 16 * 96 + 4 * 96);
  EXPECT_EQ(own.matrices - dense.matrices, 2 * indexer);
  EXPECT_EQ(every.matrices - own.matrices, 2 * indexer);
  // Latent queries, keys and values, output; dense and shared feed-forward, two of eight experts, router; head.
  const double attention = 48 * 96 + 4 * 32 * 48 + 48 * 96 + 4 * (16 + 32) * 32 + 96 * 4 * 32, dense_layer = 3 * 192 * 96,
               sparse = (2 + 1) * 3 * 48 * 96 + 8 * 96;
  EXPECT_EQ(dense.matrices, 2 * (4 * attention + dense_layer + 3 * sparse + 512 * 96));
}

TEST(TokenFlop, OfShortContextsAllKeysAreSelected) {
  const std::vector<TokenFlop> forms = forms_of("models/countdown-glm", 3);
  EXPECT_EQ(forms[0].attention, forms[2].attention);
}

// GLM-5.2's report: about 1.5, 1.8 and 2.7 times the arithmetic with an indexer in every layer.
TEST(TokenFlop, SharingIndexersSavesWhatWasPublished) {
  for (const auto& [context, ratio] : {std::pair(1 << 17, 1.5), {1 << 18, 1.8}, {1 << 20, 2.7}}) {
    const std::vector<TokenFlop> forms = forms_of("glm-5p2", context);
    EXPECT_NEAR(forms[1].total() / forms[2].total(), ratio, 0.05) << context;
    EXPECT_GT(forms[0].total(), 10 * forms[2].total());
  }
}

TEST(TokenFlop, WithoutIndexersThereIsOneForm) {
  const std::vector<TokenFlop> forms = forms_of("qwen3-8b", 1000);
  ASSERT_EQ(forms.size(), 1u);
  EXPECT_EQ(forms[0].name, "as configured");
  EXPECT_EQ(forms[0].attention, 36.0 * 32 * 1000 * 2 * (128 + 128));
  EXPECT_THROW(forms_of("qwen3-8b", 1 << 30), Error);
}
}  // namespace
}  // namespace lockstep
