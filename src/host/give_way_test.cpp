// Training that gives way to live streams between its kernels and inside of long ones, and streams that run in the middle of it, have the bits that each has
// alone, whatever the shares. A loss that a client traced gives way in the middle of a datum.
#include <gtest/gtest.h>

#include <thread>

#include "base/give_way.h"
#include "host/training_test_tools.h"
#include "losses/custom_loss.h"
#include "serving/executor.h"

namespace lockstep {
namespace {

struct Bits {
  std::vector<std::string> training;
  std::vector<std::vector<std::int32_t>> streams;
};

Bits run(bool training, bool streams, bool gives_way, const ClassShares& shares = {}) {
  TrainingBench bench({}, {.threads = 1}, shares);
  if (gives_way) bench.base->opened.runtime->backend.set_pause_point(bench.base->executor);
  Bits bits;
  std::thread client([&] {
    if (!streams) return;
    for (std::uint64_t seed = 0; seed < 12; ++seed) {
      std::promise<Generation> done;
      bench.generation->generate(
          {.prompt = {1, 2, 3}, .sampling = {.temperature = 1, .seed = seed, .max_tokens = 40}}, [](const GeneratedToken&) { return true; },
          [&](Generation&& g) { done.set_value(std::move(g)); });
      std::vector<std::int32_t>& tokens = bits.streams.emplace_back();
      for (const GeneratedToken& token : done.get_future().get().tokens) tokens.push_back(token.id);
    }
  });
  if (training) {
    const std::string session = bench.session();
    for (const std::int64_t rank : {0, 4}) {
      const std::string id = bench.model(session, rank, rank);
      for (std::int64_t sequence = 1; sequence <= 4; sequence += 2) {
        bits.training.push_back(bench.result(bench.batch(id, sequence, training_batch(static_cast<std::uint64_t>(sequence), 6, 40))).bytes);
        bits.training.push_back(bench.result(bench.step(id, sequence + 1)).bytes);
      }
    }
  }
  client.join();
  return bits;
}

TEST(GiveWay, NeitherTrainingNorStreamsHaveOtherBits) {
  const Bits training = run(true, false, false), streams = run(false, true, false);
  std::vector<ClassShares> shares{{}, {{1, 1, 98}}, {{98, 1, 1}}};
  RandomSequence draws(11, RandomStream::fuzz);
  for (int i = 0; i < 3; ++i) {
    const int live = 1 + static_cast<int>(draws.below(98)), rollouts = 1 + static_cast<int>(draws.below(static_cast<std::uint64_t>(99 - live)));
    shares.push_back({{live, rollouts, 100 - live - rollouts}});
  }
  for (const ClassShares& one : shares) {
    SCOPED_TRACE(fmt::format("{}", fmt::join(one.percent, " ")));
    const Bits both = run(true, true, true, one);
    EXPECT_EQ(both.training, training.training);
    EXPECT_EQ(both.streams, streams.streams);
  }
  EXPECT_EQ(training.training.size(), 8u);
  EXPECT_NE(training.training[0], training.training[2]);  // a control: a step between them is seen
}

// The sum of a million numbers to which the log-probability is added.
CustomLoss long_loss() {
  const char* const inputs = R"([{"name": "logprobs", "rank": 1}])";
  const char* const graph = R"({"format": 1, "nodes": [
    {"op": "placeholder", "name": "logprobs", "target": "logprobs"},
    {"op": "call_function", "name": "z", "target": "torch.zeros", "args": [1000000], "kwargs": {}},
    {"op": "call_function", "name": "x", "target": "operator.add", "args": [{"ref": "z"}, {"ref": "logprobs"}], "kwargs": {}},
    {"op": "call_function", "name": "loss", "target": "torch.sum", "args": [{"ref": "x"}], "kwargs": {}},
    {"op": "output", "name": "output", "target": "output", "args": [{"tuple": [{"ref": "loss"}, {"dict": {}}]}]}]})";
  return CustomLoss("long", nlohmann::ordered_json::parse(inputs), nlohmann::ordered_json::parse(graph));
}

// In which order things happen when a live step comes inside of the node "x", as it takes memory for its values: "l" is the step, "i" the memory that the same
// node takes next, for its index, and "(" and ")" are the loss.
std::string order_around(const CustomLoss& loss, bool gives_way, double& value) {
  constexpr std::int64_t kBefore = 20'000'000;  // bytes: "z" has told of 16 million
  Executor executor;
  std::string order;
  executor
      .run(WorkClass::training,
           [&] {
             if (!gives_way) thread_pause_point = nullptr;
             int told = 0;
             const GraphRoom room = [&](std::int64_t bytes) {
               if (bytes < kBefore) return;
               if (told == 0) executor.submit(WorkClass::live, [&order] { return order += 'l', false; });
               if (told == 1) order += 'i';
               ++told;
             };
             order += '(';
             value = loss.run({-0.5f}, {1}, {}, room).loss;
             order += ')';
           })
      .get();
  executor.drain();
  return order;
}

TEST(GiveWay, ALiveStepRunsInTheMiddleOfATracedLoss) {
  const CustomLoss loss = long_loss();
  double beside = 0, alone = 1;
  EXPECT_EQ(order_around(loss, true, beside), "(li)");
  EXPECT_EQ(order_around(loss, false, alone), "(i)l");  // the control: on a thread that does not
  EXPECT_EQ(beside, alone);
}

}  // namespace
}  // namespace lockstep
