// What `lockstep info` says of a family, for configs that differ in each.
#include "serving/family_facts.h"

#include <gtest/gtest.h>

#include "checkpoint/json_file.h"

namespace lockstep {
namespace {

Json facts_of(const std::string& config) { return family_facts(*make_model(read_json_file(LOCKSTEP_SOURCE_DIR "/shapes/configs/" + config + ".json"))); }

TEST(FamilyFacts, OfLargeModels) {
  const Json mistral = facts_of("mistral-7b"), glm = facts_of("glm-5p2"), deepseek = facts_of("deepseek-v3"), small = facts_of("smollm2-135m");
  EXPECT_EQ(mistral["attention"]["sliding_window"], 4096);
  EXPECT_EQ(mistral["attention"]["key_value_heads"], 8);
  EXPECT_TRUE(mistral["router"].is_null());
  EXPECT_TRUE(glm["attention"]["sliding_window"].is_null());
  EXPECT_TRUE(glm["attention"]["key_value_heads"].is_null());
  EXPECT_EQ(glm["attention"]["selected_keys"], 2048);
  EXPECT_EQ(glm["attention"]["indexer_layers"], 21);
  EXPECT_EQ(glm["rope"], Json({{"scaling", "none"}, {"turned_columns", 64}}));
  EXPECT_EQ(deepseek["rope"], Json({{"scaling", "yarn"}, {"factor", 40.0}, {"original_context", 4096}, {"turned_columns", 64}}));
  EXPECT_EQ(deepseek["router"], Json({{"sparse_layers", 58}, {"correction_bias", true}}));
  EXPECT_EQ(facts_of("qwen3-30b-a3b")["router"], Json({{"sparse_layers", 48}, {"correction_bias", false}}));
  EXPECT_EQ(facts_of("minimax-m2p5")["rope"]["turned_columns"], 64);
  EXPECT_EQ(small["tied_head"], true);
  EXPECT_EQ(deepseek["tied_head"], false);
}

}  // namespace
}  // namespace lockstep
