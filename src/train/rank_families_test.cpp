// A step of every family over six layouts, with LOCKSTEP_SLOW_TESTS=1 over twenty-one, has the bits of one rank: log-probabilities, the gradient's norm,
// masters and moments. What the kinds of ranks do in each of their ways is tried on three families (ranks_test.cpp and others).
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "model/archs/registry.h"
#include "train/state_test_tools.h"
#include "train/train_test_tools.h"
#include "train/trainer.h"

namespace lockstep {
namespace {

std::vector<std::string> names_of_families() {
  std::vector<std::string> names;
  for (const Family& family : families()) names.push_back(family.model_type);
  return names;
}

// The family's small model for ranks, of two segments and in a context that holds a sequence which is cut.
std::string family_in_two_segments(const std::string& family) {
  const std::string path = std::string(LOCKSTEP_SOURCE_DIR) + "/tests/golden/" + family + "/ranks.json";
  std::ifstream file(path);
  Json config = Json::parse(file);
  config["num_hidden_layers"] = 2;
  config["max_position_embeddings"] = 2048;
  if (config.contains("indexer_types")) config["indexer_types"] = std::vector<std::string>(2, "full");
  return config.dump();
}

struct FamilyStep {
  std::vector<std::vector<float>> logprobs;
  double norm = 0;
  TrainerState state;
};

FamilyStep family_step(const TrainBench& bench, const RankLayout& layout, const std::vector<TrainSequence>& data) {
  Runtime runtime({.threads = 1}, bench.model, profile_by_name("cpu-bf16w"), 2048);
  Trainer trainer(runtime, bench.masters, {.ranks = layout});
  FamilyStep step;
  step.logprobs = trainer.forward_backward(data, {}).logprobs;
  step.norm = trainer.optim_step({.weight_decay = 0.1, .router_bias_rate = 1e-3}).gradient_norm;
  step.state = trainer.state().all();
  return step;
}

void expect_family_steps(const TrainBench& bench, const std::vector<TrainSequence>& data, const std::vector<const char*>& layouts) {
  const FamilyStep want = family_step(bench, {}, data);
  EXPECT_NE(difference(bench.model->manifest(), want.state.masters, bench.masters), "");  // the step is one
  for (const char* layout : layouts) {
    SCOPED_TRACE(layout);
    const FamilyStep got = family_step(bench, rank_layout(layout), data);
    EXPECT_EQ(got.logprobs, want.logprobs);
    EXPECT_EQ(got.norm, want.norm);
    expect_same_state(bench.model->manifest(), got.state, want.state);
  }
}

class RankFamilies : public ::testing::TestWithParam<std::string> {};

TEST_P(RankFamilies, StepsHaveTheBitsOfOneRank) {
  const TrainBench bench(family_in_two_segments(GetParam()));
  ASSERT_EQ(bench.model->segments(), 2);
  std::vector<TrainSequence> data = sequences(bench.model->facts().vocabulary, 4, 60);
  std::vector<const char*> layouts = {"tp=3", "ep=3", "pp=2", "tp=2,dp=2,pp=2,shard=weights", "dp=2,ep=3,rows=dealt"};
  if (std::getenv("LOCKSTEP_SLOW_TESTS"))
    layouts.insert(layouts.end(), {"tp=2", "tp=8", "ep=2", "dp=2", "dp=3", "tp=2,dp=2", "tp=2,ep=2", "tp=2,pp=2", "dp=2,pp=2", "ep=2,pp=2", "tp=2,dp=2,ep=2",
                                   "tp=2,dp=2,ep=2,pp=2", "dp=2,shard=weights", "ep=2,rows=dealt"});
  expect_family_steps(bench, data, layouts);
  std::vector<std::int32_t> tokens(1600);
  for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<std::int32_t>((i * i + 7 * i) % 39);
  data[1] = TrainSequence::next_token(tokens);
  layouts = {"tp=2,dp=2,ep=2,pp=2,cp=2,shard=weights"};
  if (std::getenv("LOCKSTEP_SLOW_TESTS")) layouts.push_back("cp=2");
  expect_family_steps(bench, data, layouts);
}

INSTANTIATE_TEST_SUITE_P(Families, RankFamilies, ::testing::ValuesIn(names_of_families()), [](const auto& info) { return info.param; });

}  // namespace
}  // namespace lockstep
