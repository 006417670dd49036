// Feed-forward layers that are computed again work in tiles of rows: less memory, and the bits, the router's loads and the work counts of all rows at once.
#include <gtest/gtest.h>

#include "model/adapter_test_tools.h"
#include "model/archs/config_test_tools.h"
#include "train/adapter_trainer.h"
#include "train/state_test_tools.h"
#include "train/trainer.h"

namespace lockstep {
namespace {

struct TileCase {
  std::int64_t row_tile = 0;  // all rows at once
  std::string profile = "cpu-f32";
  bool accumulate = false, indexer = false, checkpoint = true;
  std::int64_t micro_batch = 0;
  RankLayout ranks = {};
  BackendKind backend = BackendKind::cpu;
};

struct Tiled {
  std::vector<std::vector<float>> scores;
  std::vector<double> losses;
  TrainerState state;
  ForwardCounts work;
  std::int64_t activations = 0, gradients = 0;  // at the most, of the first rank's backwards
};

Tiled train_in_tiles(const TrainBench& bench, const TileCase& c, const std::vector<TrainSequence>& data) {
  Runtime runtime({.kind = c.backend, .threads = 2}, bench.model, profile_by_name(c.profile), 1024);
  const TrainerOptions options{.micro_batch = c.micro_batch,
                               .checkpoint_activations = c.checkpoint,
                               .accumulate = c.accumulate,
                               .train_indexer = c.indexer,
                               .row_tile = c.row_tile,
                               .ranks = c.ranks};
  Trainer trainer(runtime, bench.masters, options, std::make_shared<RankRuntimes>(runtime, c.ranks));
  Tiled tiled;
  tiled.scores = trainer.score(data);
  for (int step = 0; step < 2; ++step) {
    runtime.backend.device().memory().reset_peaks();
    tiled.losses.push_back(trainer.forward_backward(data, {}, {.index_loss = c.indexer}).loss);
    tiled.activations = runtime.backend.device().memory().peak(MemoryCategory::activations);
    tiled.gradients = runtime.backend.device().memory().peak(MemoryCategory::gradients);
    trainer.optim_step({.router_bias_rate = 1e-2});
  }
  tiled.state = trainer.state().all();
  tiled.work = trainer.ranks().work();
  return tiled;
}

void expect_same_tiled(const TrainBench& bench, const Tiled& got, const Tiled& want, const std::string& what) {
  SCOPED_TRACE(what);
  EXPECT_TRUE(got.scores == want.scores);
  EXPECT_EQ(got.losses, want.losses);
  EXPECT_EQ(got.work, want.work);
  expect_same_state(bench.model->manifest(), got.state, want.state);
}

// Of small models and rows enough that tiles pay: one sequence has two segments of gradients.
std::vector<TrainSequence> tiled_texts(const TrainBench& bench) { return sequences(bench.model->facts().vocabulary, 5, 1000); }

std::string tiled_config(const std::string& family) {
  if (family == "glm_moe_dsa") return kGlm;
  if (family == "llama") return kLlama;
  Json biased = small_gpt_oss();
  biased["max_position_embeddings"] = 1024;
  return biased.dump();
}

class RowTilesOf : public testing::TestWithParam<const char*> {};

// Of one backward, whose weights have accumulators for the time of a layer alone; of several; in tiles of one segment and of more.
TEST_P(RowTilesOf, HaveTheBitsOfAllRows) {
  const TrainBench bench(tiled_config(GetParam()));
  const std::vector<TrainSequence> data = tiled_texts(bench);
  const Tiled want = train_in_tiles(bench, {}, data);
  expect_same_tiled(bench, train_in_tiles(bench, {.row_tile = 64}, data), want, "64 rows");
  expect_same_tiled(bench, train_in_tiles(bench, {.row_tile = 600}, data), want, "600 rows");
  expect_same_tiled(bench, train_in_tiles(bench, {.row_tile = 64, .accumulate = true}, data), want, "64 rows, accumulated");
}

INSTANTIATE_TEST_SUITE_P(Families, RowTilesOf, testing::Values("glm_moe_dsa", "llama", "gpt_oss"), [](const auto& info) { return std::string(info.param); });

TEST(RowTiles, OfLearningIndexersRanksAndOtherNumbers) {
  const TrainBench bench{std::string(kGlm)};
  const std::vector<TrainSequence> data = tiled_texts(bench);
  const Tiled want = train_in_tiles(bench, {.profile = "cpu-bf16w", .indexer = true}, data);
  expect_same_tiled(bench, train_in_tiles(bench, {.row_tile = 64, .profile = "cpu-bf16w", .indexer = true}, data), want, "64 rows");
  expect_same_tiled(bench, train_in_tiles(bench, {.row_tile = 64, .profile = "cpu-bf16w", .indexer = true, .micro_batch = 2}, data), want, "micro-batches");
  const RankLayout ranks{.tp = 2, .ep = 2};
  expect_same_tiled(bench, train_in_tiles(bench, {.row_tile = 64, .ranks = ranks}, data), train_in_tiles(bench, {.ranks = ranks}, data), "ranks");
  expect_same_tiled(bench, train_in_tiles(bench, {.row_tile = 64, .profile = "cpu-bf16w", .indexer = true, .backend = BackendKind::deferred}, data), want,
                    "deferred");
}

// What grows with rows and width is there of a tile's rows alone. Where nothing is computed again, all rows are kept anyway; and where accumulators of the
// weights would take more than tiles save, the backward has none.
TEST(RowTiles, TakeTheMemoryOfATile) {
  Json wide = Json::parse(kLlama);
  wide["intermediate_size"] = 1320;
  wide["num_hidden_layers"] = 1;
  const TrainBench bench(wide.dump());
  const std::vector<TrainSequence> data = tiled_texts(bench);
  const Tiled all = train_in_tiles(bench, {}, data), tiled = train_in_tiles(bench, {.row_tile = 64}, data);
  expect_same_tiled(bench, tiled, all, "64 rows");
  EXPECT_LT(tiled.activations, all.activations * 7 / 10);
  EXPECT_GT(tiled.gradients, all.gradients);
  const Tiled kept = train_in_tiles(bench, {.checkpoint = false}, data);
  EXPECT_EQ(train_in_tiles(bench, {.row_tile = 64, .checkpoint = false}, data).activations, kept.activations);
  const std::vector<TrainSequence> few = sequences(bench.model->facts().vocabulary, 5, 60);
  EXPECT_EQ(train_in_tiles(bench, {.row_tile = 64}, few).gradients, train_in_tiles(bench, {}, few).gradients);
}

// Two adapters in one pass: rows of each stand in several tiles.
TEST(RowTiles, AdaptersHaveTheBitsOfAllRows) {
  const TrainBench bench{std::string(kGlm)};
  const std::vector<TrainSequence> data = tiled_texts(bench);
  constexpr AdapterSettings kAll{.rank = 4, .alpha = 7, .attention = true, .mlp = true, .unembedding = true};
  const auto layout = std::make_shared<const AdapterLayout>(bench.model->manifest(), kAll);
  const auto trained = [&](std::int64_t tile) {
    Runtime runtime({.threads = 2}, bench.model, profile_by_name("cpu-f32"), 1024);
    const TrainerOptions options{.checkpoint_activations = true, .row_tile = tile};
    const auto base =
        std::make_shared<FrozenBase>(runtime, make_weight_set(runtime.backend, bench.model->manifest(), bench.masters, runtime.profile, 1), options);
    AdapterTrainer one(base, layout, stirred(*layout, 1), adamw()), two(base, layout, stirred(*layout, 2), adamw());
    AdapterTrainer::forward_backward_together({{&one, &data, {}}, {&two, &data, {}}});
    one.optim_step({});
    two.optim_step({});
    return std::pair(one.state().all(), two.state().all());
  };
  const auto want = trained(0), got = trained(64);
  expect_same_state(layout->manifest(), got.first, want.first);
  expect_same_state(layout->manifest(), got.second, want.second);
  EXPECT_NE(difference(layout->manifest(), want.first.masters, want.second.masters), "") << "the control";
}

}  // namespace
}  // namespace lockstep
