// Activation checkpointing computes each layer again alone, and selects no key twice: the selection of the forward stays. No bit depends on it.
#include <gtest/gtest.h>

#include <map>

#include "train/prefix_test_tools.h"

namespace lockstep {
namespace {

class SelectionCounter final : public OperationObserver {
 public:
  std::map<int, int> selections;  // by layer
  std::int64_t replays = 0;
  void begin_forward(Backend&, const Batch&) override {}
  void operation(const Operation& done) override { selections[done.layer] += done.name == "index_select"; }
  void replay_segment() override { ++replays; }
};

struct Taken {
  WeightImages gradients;
  double index_loss = 0;
  std::map<int, int> selections;
  std::int64_t replays = 0;
};

// Layers 0 to 2 use one selection, layer 3 its own.
TrainBench selecting_bench() {
  Json json = Json::parse(kPrefixGlm);
  json["num_hidden_layers"] = 4;
  json["indexer_types"] = {"full", "shared", "shared", "full"};
  json["mlp_layer_types"] = {"dense", "sparse", "sparse", "sparse"};
  return TrainBench(json.dump());
}

Taken take(const TrainBench& bench, const std::vector<TrainSequence>& data, TrainerOptions options, const IndexTraining& index, int threads = 2) {
  SelectionCounter counter;
  Runtime runtime({.threads = threads}, bench.model, profile_by_name("cpu-bf16w"), 600);
  runtime.observer = &counter;
  options.train_indexer = index.index_loss;
  Trainer trainer(runtime, bench.masters, options);
  Taken taken;
  taken.index_loss = trainer.forward_backward(data, {}, index).index_loss;
  taken.gradients = trainer.gradient_images();
  std::erase_if(counter.selections, [](const auto& of_layer) { return of_layer.second == 0; });
  taken.selections = counter.selections;
  taken.replays = counter.replays;
  return taken;
}

TEST(SelectedOnce, ByALayerThatIsComputedAgain) {
  const TrainBench bench = selecting_bench();
  const std::vector<TrainSequence> data = sequences(96);
  for (const bool learns : {false, true})
    for (const bool dense : {false, true}) {
      SCOPED_TRACE(fmt::format("index loss {}, dense {}", learns, dense));
      const IndexTraining index{.dense_attention = dense, .index_loss = learns};
      const Taken plain = take(bench, data, {}, index), again = take(bench, data, {.checkpoint_activations = true}, index, 1);
      EXPECT_EQ(difference(bench.model->manifest(), again.gradients, plain.gradients), "");
      EXPECT_EQ(again.index_loss, plain.index_loss);
      EXPECT_EQ(again.index_loss > 0, learns);
      const std::map<int, int> once = dense ? std::map<int, int>{} : std::map<int, int>{{0, 1}, {3, 1}};
      EXPECT_EQ(plain.selections, once);
      EXPECT_EQ(again.selections, once);
      EXPECT_EQ(plain.replays, 0);
      EXPECT_EQ(again.replays, dense && learns ? 2 : 4);
    }
}

// Micro-batches select each for itself; rows that sequences share are selected for once, whether their gradients are each sequence's or one's.
TEST(SelectedOnce, InMicroBatchesAndSharedPrefixes) {
  const TrainBench bench = selecting_bench();
  const std::map<int, int> once{{0, 1}, {3, 1}};
  for (const bool declared : {false, true}) {
    SCOPED_TRACE(declared);
    const IndexTraining index{.index_loss = !declared};
    const std::vector<TrainSequence> data = groups_of({{30, {5, 17, 9}}, {14, {8, 3}}}, declared);
    const Taken plain = take(bench, data, {.declared_prefixes = declared}, index);
    for (const bool shares : {false, true}) {
      SCOPED_TRACE(shares);
      const Taken again = take(bench, data, {.checkpoint_activations = true, .share_prefixes = shares, .declared_prefixes = declared}, index);
      EXPECT_EQ(difference(bench.model->manifest(), again.gradients, plain.gradients), "");
      EXPECT_EQ(again.index_loss, plain.index_loss);
      EXPECT_EQ(again.selections, once);
    }
    if (declared) continue;
    const Taken cut = take(bench, data, {.micro_batch = 2, .checkpoint_activations = true}, index);
    EXPECT_EQ(difference(bench.model->manifest(), cut.gradients, plain.gradients), "");
    EXPECT_EQ(cut.selections, (std::map<int, int>{{0, 3}, {3, 3}}));
    EXPECT_EQ(cut.replays, 3 * 4);
  }
}

}  // namespace
}  // namespace lockstep
