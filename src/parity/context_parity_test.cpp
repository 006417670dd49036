// Parity of a layout whose ranks have pieces of a long sequence: the steps are compared, and the control is found.
#include <gtest/gtest.h>

#include "parity/parity.h"

namespace lockstep {
namespace {

constexpr const char kConfig[] = R"({
  "model_type": "llama", "vocab_size": 40, "hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16,
  "intermediate_size": 40, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": true, "hidden_act": "silu"})";

ParityReport parity_of(std::int64_t context) {
  Json config = Json::parse(kConfig);
  config["max_position_embeddings"] = context;
  ParityModel model{make_model(config), {}};
  model.masters = initial_weights(model.model->manifest(), 7, 0.25);
  return run_parity(model, {.cases = 0, .seed = 3, .ranks = "cp=2", .step_share = 3});
}

std::int64_t counted(const ParityReport& report, const std::string& name) {
  for (const ParityCounter& counter : report.engagement)
    if (counter.name == name) return counter.value;
  return -1;
}

TEST(ContextParity, PiecesOfASequenceAreCompared) {
  const ParityReport report = parity_of(1600);
  EXPECT_TRUE(report.passed()) << to_text(report);
  EXPECT_FALSE(report.control.internal_model) << "the control's step is of this model, in pieces";
  EXPECT_EQ(counted(report, "pieces_steps"), 4);
  EXPECT_EQ(counted(report, "adapter_pieces_steps"), 4);
}

// Of a context that holds no such sequence the layout is compared as dp is, and the report says that nothing was in pieces.
TEST(ContextParity, AShortContextHasNoPieces) {
  const ParityReport report = parity_of(40);
  EXPECT_TRUE(report.passed()) << to_text(report);
  EXPECT_EQ(counted(report, "pieces_steps"), 0);
}

}  // namespace
}  // namespace lockstep
