// Which indexers go first: greedy against every choice, and that no bit depends on threads or instruction set. (That losses with fewer indexers are those
// of transformers' model of the same pattern is tests/oracle/test_index_share.py's.)
#include "parity/index_search.h"

#include <gtest/gtest.h>

#include "base/philox.h"
#include "engine/engine_test_tools.h"
#include "model/index_pattern.h"

namespace lockstep {
namespace {
std::vector<std::vector<std::int32_t>> search_texts(std::uint64_t seed) {
  RandomSequence draws(seed, RandomStream::fuzz);
  std::vector<std::vector<std::int32_t>> texts;
  for (const std::int64_t length : {33, 20, 1}) texts.push_back(random_tokens(draws, length, 101));
  return texts;
}
IndexSearch search_of(const IndexSearchSettings& settings, const BackendOptions& backend = {.threads = 2}) {
  Plant plant("sharing", "cpu-bf16w", backend);
  const std::shared_ptr<const Model> model = plant.runtime.model;
  const IndexSearch search = search_indexers(plant.runtime, *plant.weights, search_texts(4), settings);
  EXPECT_EQ(plant.runtime.model, model);  // is given back
  return search;
}
std::string refusal_of(const std::string& config, const IndexSearchSettings& settings) {
  Plant plant(config);
  try {
    search_indexers(plant.runtime, *plant.weights, search_texts(4), settings);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(IndexSearch, LeavesOutOneAfterTheOther) {
  std::int64_t told = 0;
  const auto on_tried = [&](std::int64_t tried, std::int64_t of) {
    EXPECT_EQ(of, 11);
    told = tried;
  };
  const IndexSearch search = search_of({.indexers = 1, .on_tried = on_tried});
  EXPECT_EQ(search.tokens, 32 + 19);
  EXPECT_EQ(search.tried, 1 + 4 + 3 + 2 + 1);
  EXPECT_EQ(told, search.tried);
  ASSERT_EQ(search.steps.size(), 5u);
  EXPECT_EQ(search.steps[0].layers, (std::vector<int>{0, 1, 2, 6, 10}));
  EXPECT_EQ(search.steps[4].layers, (std::vector<int>{0}));
  for (std::size_t i = 1; i < search.steps.size(); ++i) {
    EXPECT_EQ(search.steps[i].layers.size(), 5 - i);
    EXPECT_TRUE(
        std::includes(search.steps[i - 1].layers.begin(), search.steps[i - 1].layers.end(), search.steps[i].layers.begin(), search.steps[i].layers.end()));
    EXPECT_NE(search.steps[i].loss, search.steps[i - 1].loss);
  }
}

TEST(IndexSearch, EveryChoiceIsAtLeastAsGoodAsGreedy) {
  for (const std::int64_t indexers : {4, 3, 2}) {
    const IndexSearch greedy = search_of({.indexers = indexers}), all = search_of({.indexers = indexers, .exhaustive = true});
    EXPECT_LE(all.steps.back().loss, greedy.steps.back().loss) << indexers;
    EXPECT_EQ(all.steps.back().layers.size(), static_cast<std::size_t>(indexers));
    EXPECT_EQ(all.tried, 1 + (indexers == 3 ? 6 : 4));  // of the four behind the first one
    EXPECT_EQ(all.steps.front().loss, greedy.steps.front().loss);
    if (indexers == 4) {  // the same choices
      EXPECT_EQ(all.steps.back().layers, greedy.steps.back().layers);
    }
  }
}

TEST(IndexSearch, NoBitDependsOnThreadsOrInstructionSet) {
  const std::string expected = to_json(search_of({.indexers = 2}, {.threads = 1})).dump();
  EXPECT_EQ(to_json(search_of({.indexers = 2}, {.threads = 3})).dump(), expected);
  EXPECT_EQ(to_json(search_of({.indexers = 2}, {.isa = InstructionSet::scalar, .threads = 2})).dump(), expected);
  Plant other("sharing", "cpu-bf16w", {.threads = 1});
  EXPECT_NE(to_json(search_indexers(other.runtime, *other.weights, search_texts(5), {.indexers = 2})).dump(), expected);  // the control
}

TEST(IndexSearch, TheConfigOfAChoiceMakesThatModel) {
  const Plant plant;
  for (const std::vector<int>& layers : {std::vector<int>{0}, {0, 6}, {0, 1, 10}})
    EXPECT_EQ(indexer_layers(*make_model(with_indexers(plant.runtime.model->config(), 11, layers))), layers);
  EXPECT_EQ(index_pattern(5, {0, 3}), "FSSFS");
}

TEST(IndexSearch, SaysWhatItNeeds) {
  EXPECT_NE(refusal_of("sharing", {.indexers = 6}).find("indexers is 6, allowed are 1 to 5"), std::string::npos);
  EXPECT_NE(refusal_of("sharing", {.indexers = 0}).find("indexers is 0"), std::string::npos);
  Plant plant;
  EXPECT_THROW(search_indexers(plant.runtime, *plant.weights, {{1}}, {}), Error);
  StopSource source;
  source.stop();
  EXPECT_THROW(search_indexers(plant.runtime, *plant.weights, search_texts(4), {}, source.token()), Error);
}
}  // namespace
}  // namespace lockstep
