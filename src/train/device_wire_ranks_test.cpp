// Steps over processes whose devices' memory goes by a wire of its own (parallel/device_wire.h) have the bits of one rank, and as many exchanges and bytes as
// threads: sums, sequences, stages, weights in shares whose exchanges are begun early, and rows that travel to their experts.
#include <gtest/gtest.h>

#include "parallel/device_wire_test_tools.h"
#include "parallel/exchange_counts.h"
#include "parallel/memory_wire_test_tools.h"
#include "train/train_test_tools.h"
#include "train/trainer.h"

namespace lockstep {
namespace {

struct WiredStep {
  std::vector<std::vector<float>> logprobs;
  double norm = 0;
  TrainerState state;
  CommunicatorCounters traffic;
};

WiredStep wired_step(const TrainBench& bench, const RankLayout& layout, const std::vector<TrainSequence>& data, std::unique_ptr<Ranks> ranks = nullptr) {
  Runtime runtime({.threads = 1}, bench.model, profile_by_name("cpu-bf16w"), 600);
  Trainer trainer(runtime, bench.masters, {.micro_batch = 1, .ranks = layout}, std::make_shared<RankRuntimes>(runtime, layout, std::move(ranks)));
  WiredStep step;
  step.logprobs = trainer.forward_backward(data, {}).logprobs;
  step.norm = trainer.optim_step({.weight_decay = 0.1, .router_bias_rate = 1e-3}).gradient_norm;
  step.state = trainer.state().all();
  step.traffic = trainer.ranks().traffic();
  return step;
}

TEST(DeviceWireRanks, StepsHaveTheBitsOfOneRank) {
  const TrainBench bench(kGlm);
  const std::vector<TrainSequence> data = sequences(bench.model->facts().vocabulary, 4, 60);
  const WiredStep want = wired_step(bench, {}, data);
  for (const char* text : {"dp=2", "tp=2,dp=2", "pp=2", "dp=3,shard=weights", "ep=3,rows=dealt", "ep=9"}) {
    SCOPED_TRACE(text);
    const RankLayout layout = rank_layout(text);
    const WiredStep threads = wired_step(bench, layout, data);
    const auto net = std::make_shared<DeviceNet>();
    std::vector<WiredStep> got(static_cast<std::size_t>(layout.size()));
    as_processes(layout.size(), [&](ProcessMail& mail) {
      MemoryDevices wire(net, mail.process());
      got[static_cast<std::size_t>(mail.process())] = wired_step(bench, layout, data, std::make_unique<ProcessRanks>(layout, mail, &wire));
    });
    EXPECT_GT(net->moved.load(), 0);
    for (const WiredStep& one : got) {
      EXPECT_EQ(one.logprobs, want.logprobs);
      EXPECT_EQ(one.norm, want.norm);
      EXPECT_EQ(difference(bench.model->manifest(), one.state.masters, want.state.masters), "") << "masters";
      EXPECT_EQ(difference(bench.model->manifest(), one.state.second_moments, want.state.second_moments), "") << "second moments";
      EXPECT_EQ(one.traffic.calls, threads.traffic.calls);
      EXPECT_EQ(one.traffic.bytes, threads.traffic.bytes);
    }
  }
}

}  // namespace
}  // namespace lockstep
