// A layer of multi-token prediction whose ranks several processes have: each process has the results, the state and the model's bits of one rank. Threads stand
// for processes, with a wire in memory between them.
#include <algorithm>
#include <limits>

#include "base/error.h"
#include "parallel/memory_wire_test_tools.h"
#include "train/mtp_ranks_test_tools.h"

namespace lockstep {
namespace {

struct Owned {
  RankLayout ranks;
  int processes;
};

// `of_second`: what the second process trains, where it is not the same.
std::vector<LayerOutcome> trained_by(const LayerBench& bench, const LayerCase& c, int processes, const LayerBench* of_second = nullptr) {
  std::vector<LayerOutcome> got(static_cast<std::size_t>(processes));
  as_processes(processes, [&](ProcessMail& mail) {
    const LayerBench& own = of_second && mail.process() == 1 ? *of_second : bench;
    got[static_cast<std::size_t>(mail.process())] = own.train(c, 2, std::make_unique<ProcessRanks>(c.ranks, mail));
  });
  return got;
}

class MtpProcesses : public testing::TestWithParam<bool> {};  // over an adapter

// The rank that answers is in the first process, in the last, or in one of three; weights in shares are gathered from both.
TEST_P(MtpProcesses, StepsHaveTheBitsOfOneRank) {
  const LayerBench bench;
  const LayerOutcome want = bench.train({.profile = "cpu-bf16w", .adapted = GetParam()}, 2);
  EXPECT_NE(want.results[0].loss, want.results[2].loss);
  const std::vector<Owned> all{{{.dp = 2}, 2}, {{.tp = 2}, 2}, {{.pp = 2}, 2}, {{.tp = 2, .dp = 2, .pp = 2}, 3}, {{.dp = 2, .shard = RankShard::weights}, 2}};
  for (const Owned& owned : all) {
    const LayerCase over{.ranks = owned.ranks, .profile = "cpu-bf16w", .micro_batch = 1, .adapted = GetParam()};
    std::vector<LayerOutcome> got = trained_by(bench, over, owned.processes);
    EXPECT_FALSE(got.front().published.empty()) << "process 0 has the layer's weights, wherever the layer is";
    for (std::size_t p = 0; p < got.size(); ++p) {
      if (got[p].published.empty()) got[p].published = want.published;  // only the caller of the others needs them
      bench.expect_same(got[p], want, fmt::format("{}, process {} of {}", owned.ranks.text(), p, owned.processes));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Over, MtpProcesses, testing::Bool(), [](const auto& info) { return std::string(info.param ? "adapter" : "weights"); });

// The control: a process whose layer began with other weights.
TEST(MtpProcessesControl, AnotherLayerInOneProcessIsSeen) {
  const LayerBench bench;
  LayerBench other = bench;
  other.layer = initial_weights(bench.model->mtp()->manifest(), 3, 0.08);
  const LayerOutcome want = bench.train({.loss = MtpLoss::ce}, 2);
  for (const RankLayout& ranks : {RankLayout{.dp = 2}, {.pp = 2}}) {
    const LayerOutcome got = trained_by(bench, {.ranks = ranks, .loss = MtpLoss::ce}, 2, &other).front();
    EXPECT_NE(difference(bench.model->mtp()->manifest(), got.state.masters, want.state.masters), "") << ranks.text();
    EXPECT_NE(got.results[0].loss, want.results[0].loss) << ranks.text();
  }
}

// The model moves too: the layer's part of its gradient is joined over the processes with its own, and comes back through stages.
TEST(MtpProcessesJoint, TheModelHasTheBitsOfOneRank) {
  const LayerBench bench;
  const auto stepped = [&](const RankLayout& layout, bool joint, std::unique_ptr<Ranks> of_owner) {
    Runtime runtime({.threads = 1}, bench.model, profile_by_name("cpu-bf16w"), bench.positions);
    const auto ranks = std::make_shared<RankRuntimes>(runtime, layout, std::move(of_owner));
    Trainer model(runtime, bench.masters, {.accumulate = true, .ranks = layout}, ranks);
    MtpTrainer layer(runtime, bench.layer, {.depths = 2, .loss = MtpLoss::both}, {.ranks = layout}, ranks);
    for (int step = 0; step < 2; ++step) {
      model.forward_backward(bench.data, {});
      std::vector<TrunkShare> trunk;
      for (const auto& part : model.ranks().parts()) trunk.push_back({part->weights().get(), nullptr, joint ? part->more_gradients() : nullptr});
      layer.forward_backward(trunk, bench.data);
      layer.optim_step({.learning_rate = 1e-3});
      model.optim_step({.learning_rate = 1e-3, .router_bias_rate = 1e-3});
    }
    return model.state().masters();
  };
  const Manifest& manifest = bench.model->manifest();
  const WeightImages want = stepped({}, true, nullptr);
  EXPECT_NE(difference(manifest, stepped({}, false, nullptr), want), "") << "the control: it moves by the layer's losses";
  for (const RankLayout& layout : {RankLayout{.dp = 2}, {.tp = 2}, {.pp = 2}, {.dp = 2, .shard = RankShard::weights}}) {
    std::vector<WeightImages> got(2);
    as_processes(
        2, [&](ProcessMail& mail) { got[static_cast<std::size_t>(mail.process())] = stepped(layout, true, std::make_unique<ProcessRanks>(layout, mail)); });
    for (const WeightImages& masters : got) EXPECT_EQ(difference(manifest, masters, want), "") << layout.text();
  }
}

// A number that fails on one rank: both processes are told, have no gradient, and go on with other data.
TEST(MtpProcessesFailure, AnErrorOfOneRankReleasesTheOthers) {
  constexpr std::int32_t kBroken = 95;  // a token of one sequence alone
  LayerBench bench;
  const auto hidden = static_cast<std::ptrdiff_t>(bench.model->facts().hidden);
  std::fill_n(bench.masters.front().begin() + kBroken * hidden, hidden, std::numeric_limits<float>::infinity());
  std::vector<TrainSequence> good, bad;
  for (std::int32_t s = 0; s < 4; ++s) {
    std::vector<std::int32_t> tokens(20, s + 1);
    good.push_back(TrainSequence::next_token(tokens));
    if (s == 3) tokens[5] = kBroken;
    bad.push_back(TrainSequence::next_token(tokens));
  }
  const auto stepped = [&](const RankLayout& layout, std::unique_ptr<Ranks> of_owner) {
    Runtime runtime({.threads = 1}, bench.model, profile_by_name("cpu-f32"), bench.positions);
    const auto ranks = std::make_shared<RankRuntimes>(runtime, layout, std::move(of_owner));
    const auto weights = make_weight_set(runtime.backend, bench.model->manifest(), bench.masters, runtime.profile, 0);
    MtpTrainer layer(runtime, bench.layer, {.depths = 2}, {.ranks = layout}, ranks);
    const std::vector<TrunkShare> trunk(static_cast<std::size_t>(ranks->ranks().local()), TrunkShare{weights.get()});
    try {
      layer.forward_backward(trunk, bad);
      ADD_FAILURE() << "an infinite weight was not seen";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::numeric) << e.what();
    }
    EXPECT_THROW(layer.optim_step({}), Error) << "there is a gradient";
    layer.forward_backward(trunk, good);
    layer.optim_step({});
    return layer.state();
  };
  const TrainerState want = stepped({}, nullptr);
  EXPECT_EQ(want.step, 1);
  as_processes(2, [&](ProcessMail& mail) {
    const RankLayout layout{.dp = 2};
    expect_same_state(bench.model->mtp()->manifest(), stepped(layout, std::make_unique<ProcessRanks>(layout, mail)), want);
  });
}

}  // namespace
}  // namespace lockstep
