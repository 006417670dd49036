// Transports that are slow, and one that loses a deposit: delays before exchanges, and letters that come late, change no bit of a step over ranks; where one
// rank's part of a weight's gradient is lost the parameter is found.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "parallel/exchange_counts.h"
#include "parallel/hooked_ranks_test_tools.h"
#include "parallel/memory_wire_test_tools.h"
#include "parallel/thread_ranks.h"
#include "train/state_test_tools.h"
#include "train/train_test_tools.h"
#include "train/trainer.h"

namespace lockstep {
namespace {

// Of a context that holds sequences which are cut.
std::string in_long_context(std::string config) {
  const std::string key = "\"max_position_embeddings\": ";
  const std::size_t at = config.find(key) + key.size();
  return config.replace(at, config.find(',', at) - at, "4096");
}

std::vector<TrainSequence> texts_with_a_long_one(std::int64_t vocabulary) {
  std::vector<TrainSequence> data = sequences(vocabulary, 4, 150);
  std::vector<std::int32_t> tokens(1600);
  for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<std::int32_t>((i * i + 7 * i) % 89);
  data.push_back(TrainSequence::next_token(tokens));
  return data;
}

struct HookedSteps {
  std::vector<std::vector<float>> logprobs;
  WeightImages gradients;
  TrainerState state;
};

HookedSteps hooked_steps(const TrainBench& bench, const RankLayout& layout, const std::vector<TrainSequence>& data, int count,
                         std::unique_ptr<Ranks> ranks = nullptr) {
  Runtime runtime({.threads = 1}, bench.model, profile_by_name("cpu-bf16w"), 4096);
  Trainer trainer(runtime, bench.masters, {.micro_batch = 1, .ranks = layout}, std::make_shared<RankRuntimes>(runtime, layout, std::move(ranks)));
  HookedSteps steps;
  for (int step = 0; step < count; ++step) {
    steps.logprobs = trainer.forward_backward(data, {}).logprobs;
    steps.gradients = trainer.gradient_images();
    trainer.optim_step({.weight_decay = 0.1, .router_bias_rate = 1e-3});
  }
  steps.state = trainer.state().all();
  return steps;
}

void expect_same_hooked(const TrainBench& bench, const HookedSteps& got, const HookedSteps& want) {
  EXPECT_EQ(got.logprobs, want.logprobs);
  EXPECT_EQ(difference(bench.model->manifest(), got.gradients, want.gradients), "") << "gradients";
  expect_same_state(bench.model->manifest(), got.state, want.state);
}

// The next of a row of numbers that are spread over all values, whichever thread asks.
std::uint32_t spread(std::atomic<std::uint32_t>& draws) { return draws.fetch_add(1) * 2654435761u; }

// Up to a third of a millisecond before each exchange of each rank.
ExchangeHooks delays(const std::shared_ptr<std::atomic<std::uint32_t>>& draws) {
  return {.before = [draws] { std::this_thread::sleep_for(std::chrono::microseconds(spread(*draws) % 333)); }};
}

TEST(DelayedExchanges, OfThreadsChangeNoBit) {
  for (const char* family : {kGlm, kLlama}) {
    const TrainBench bench(in_long_context(family));
    const std::int64_t vocabulary = bench.model->facts().vocabulary;
    const std::vector<TrainSequence> data = family == std::string(kLlama) ? texts_with_a_long_one(vocabulary) : sequences(vocabulary, 4, 150);
    const HookedSteps want = hooked_steps(bench, {}, data, 1);
    for (const RankLayout& layout : {RankLayout{.tp = 2, .ep = 2},
                                     {.dp = 3},
                                     {.dp = 2, .pp = 2},
                                     {.cp = 2},
                                     {.dp = 2, .shard = RankShard::weights},
                                     {.ep = 2, .rows = ReplicaRows::dealt}}) {
      SCOPED_TRACE(layout.text());
      const auto draws = std::make_shared<std::atomic<std::uint32_t>>(0);
      expect_same_hooked(bench, hooked_steps(bench, layout, data, 1, std::make_unique<HookedRanks>(std::make_unique<ThreadRanks>(layout), delays(draws))),
                         want);
      EXPECT_GT(draws->load(), 20u);
    }
  }
}

// The ranks wait before their exchanges, and of each pair of processes three looks of four find nothing that has come.
TEST(DelayedExchanges, OfProcessesChangeNoBit) {
  const TrainBench bench(in_long_context(kLlama));
  const std::vector<TrainSequence> data = texts_with_a_long_one(bench.model->facts().vocabulary);
  const HookedSteps want = hooked_steps(bench, {}, data, 2);
  for (const auto& [layout, processes] : {std::pair{RankLayout{.tp = 2}, 2},
                                          {RankLayout{.dp = 3}, 3},
                                          {RankLayout{.dp = 2, .pp = 2}, 2},
                                          {RankLayout{.cp = 2}, 2},
                                          {RankLayout{.dp = 3, .shard = RankShard::weights}, 2}}) {
    SCOPED_TRACE(layout.text());
    const auto draws = std::make_shared<std::atomic<std::uint32_t>>(0), looks = std::make_shared<std::atomic<std::uint32_t>>(0);
    const auto net = std::make_shared<MemoryNet>(processes);
    net->late = [looks](int, int) { return (spread(*looks) >> 30) != 0; };
    std::vector<HookedSteps> got(static_cast<std::size_t>(processes));
    as_processes(net, [&](ProcessMail& mail) {
      got[static_cast<std::size_t>(mail.process())] =
          hooked_steps(bench, layout, data, 2, std::make_unique<HookedRanks>(std::make_unique<ProcessRanks>(layout, mail), delays(draws)));
    });
    for (const HookedSteps& one : got) expect_same_hooked(bench, one, want);
    EXPECT_GT(draws->load(), 20u);
    EXPECT_GT(looks->load(), 100u);
  }
}

// Makes the first accumulator that has something nothing. Whether there was one.
bool forget_a_deposit(const View& bins) {
  auto* const numbers = reinterpret_cast<double*>(bins.address);
  for (std::int64_t i = 0; i < bins.size(); ++i) {
    double* const own = numbers + i / 16 * 48 + i % 16;
    if (own[0] == 0 && own[16] == 0 && own[32] == 0) continue;
    own[0] = own[16] = own[32] = 0;
    return true;
  }
  return false;
}

// The control: of two replicas one has lost what the other deposited for one weight. That parameter has another gradient, and no other.
TEST(DelayedExchangesControl, ALostDepositIsFoundAtItsParameter) {
  const TrainBench bench(in_long_context(kLlama));
  const std::vector<Parameter>& parameters = bench.model->manifest().parameters();
  const std::vector<TrainSequence> data = sequences(bench.model->facts().vocabulary, 4, 150);
  const HookedSteps want = hooked_steps(bench, {}, data, 1);
  for (const std::string name : {"model.layers.0.self_attn.o_proj.weight", "model.layers.1.mlp.down_proj.weight"}) {
    std::size_t lost = 0;
    while (lost < parameters.size() && parameters[lost].name != name) ++lost;
    ASSERT_LT(lost, parameters.size()) << name;
    std::size_t joined = 0;  // parameters are joined in their order
    bool gone = false;
    const RankLayout layout{.dp = 2};
    const auto lose = [&](RankGroup group, int rank, const std::vector<View>& from) {
      if (group == RankGroup::data && rank == 0 && CollectiveScope::current() == Collective::reduce_scatter && joined++ == lost)
        gone = forget_a_deposit(from[1]);
    };
    const HookedSteps got =
        hooked_steps(bench, layout, data, 1, std::make_unique<HookedRanks>(std::make_unique<ThreadRanks>(layout), ExchangeHooks{.after = lose}));
    EXPECT_TRUE(gone);
    std::vector<std::string> other;
    for (std::size_t i = 0; i < parameters.size(); ++i)
      if (!same_bits(got.gradients[i], want.gradients[i])) other.push_back(parameters[i].name);
    EXPECT_EQ(other, std::vector<std::string>{name});
  }
}

}  // namespace
}  // namespace lockstep
