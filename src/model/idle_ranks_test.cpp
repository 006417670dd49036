// Which ranks of a layout have nothing to do in a model is said, and of a layout that helps nothing.
#include "model/idle_ranks.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

constexpr const char* kTwoDenseLayers = R"({
  "model_type": "llama", "vocab_size": 40, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16,
  "max_position_embeddings": 8192, "intermediate_size": 40, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": true, "hidden_act": "silu"})";
constexpr const char* kSixteenExperts = R"({
  "model_type": "qwen3_moe", "vocab_size": 96, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 6, "num_key_value_heads": 3, "head_dim": 32,
  "max_position_embeddings": 1024, "intermediate_size": 160, "rms_norm_eps": 1e-06, "rope_theta": 10000.0, "tie_word_embeddings": true, "hidden_act": "silu",
  "mlp_only_layers": [0], "moe_intermediate_size": 24, "num_experts": 16, "num_experts_per_tok": 3, "norm_topk_prob": true})";

// The first words of each sentence.
std::vector<std::string> idle_kinds(const char* config, std::string_view layout, std::int64_t positions = 8192) {
  std::vector<std::string> kinds;
  for (const std::string& sentence : idle_ranks(rank_layout(layout), *make_model(Json::parse(config)), positions))
    kinds.push_back(sentence.substr(0, sentence.find_first_of(" ,")));
  return kinds;
}

TEST(IdleRanks, AreSaidOfEachKind) {
  using Kinds = std::vector<std::string>;
  EXPECT_EQ(idle_kinds(kTwoDenseLayers, "pp=3"), Kinds{"pp=3"});
  EXPECT_EQ(idle_kinds(kTwoDenseLayers, "ep=2"), Kinds{"ep=2"});
  EXPECT_EQ(idle_kinds(kTwoDenseLayers, "cp=2", 1536), Kinds{"cp=2"});
  EXPECT_EQ(idle_kinds(kTwoDenseLayers, "ep=2,pp=3,cp=3", 2560), (Kinds{"pp=3", "ep=2", "cp=3"}));
  EXPECT_EQ(idle_kinds(kSixteenExperts, "tp=3,ep=6"), Kinds{"tp"});
  EXPECT_EQ(idle_kinds(kSixteenExperts, "ep=17,rows=dealt"), Kinds{"tp"});
}

TEST(IdleRanks, NothingIsSaidOfLayoutsThatHelp) {
  for (const char* layout : {"", "tp=2", "dp=7", "dp=2,shard=weights", "pp=2", "cp=2", "ep=2,rows=dealt"})
    EXPECT_TRUE(idle_kinds(kTwoDenseLayers, layout, 1537).empty()) << layout;
  for (const char* layout : {"ep=8", "tp=2,ep=4", "ep=2,rows=dealt", "tp=3,ep=3", "ep=16,rows=dealt"})
    EXPECT_TRUE(idle_kinds(kSixteenExperts, layout).empty()) << layout;
}

}  // namespace
}  // namespace lockstep
