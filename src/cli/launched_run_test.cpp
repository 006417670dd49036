#include "cli/launched_run.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "cli/options.h"

namespace lockstep {
namespace {

constexpr const char kModel[] = LOCKSTEP_SOURCE_DIR "/models/countdown-glm";

LaunchedRun launched(const Arguments& more, const std::string& kind = "sft") {
  Arguments words{"train", kind, "--model", kModel, "--environment", "countdown"};
  if (kind == "sft") words.insert(words.end(), {"--steps", "4"});
  words.insert(words.end(), more.begin(), more.end());
  const std::optional<LaunchedRun> run = read_launched_run(words);
  EXPECT_TRUE(run);
  return run.value_or(LaunchedRun());
}

TEST(LaunchedRun, IsReadByTheCommandsOwnOptionsAndNotBegun) {
  const LaunchedRun run = launched({"--name", "a", "--runs", "some/where", "--batch", "7", "--micro-batch", "2", "--checkpoint-every", "5", "--rank-timeout",
                                    "9", "--set", "profile=cpu-f32", "--resume"});
  EXPECT_EQ(run.folder, "some/where/a");
  EXPECT_FALSE(std::filesystem::exists("some")) << "a run was begun";
  EXPECT_EQ(run.runtime.profile, "cpu-f32");
  EXPECT_EQ(run.runtime.model, kModel);
  EXPECT_EQ(run.runtime.ranks, "");
  EXPECT_EQ(run.sequences, 7);
  EXPECT_EQ(run.micro_batch, 2);
  EXPECT_TRUE(run.resume);
  EXPECT_TRUE(run.saves);
  EXPECT_FALSE(run.checkpoint_activations);
  EXPECT_EQ(launched({"--fork", "b", "--name", "a"}).folder, "runs/b");
  EXPECT_FALSE(launched({"--checkpoint-every", "0"}).saves);
  EXPECT_EQ(launched({}).sequences, 32);
  EXPECT_EQ(launched({"--problems", "3", "--rollouts", "5"}, "rl").sequences, 15);
  EXPECT_EQ(launched({"--ranks", "tp=2"}).runtime.ranks, "tp=2");
  const auto of = [](const Arguments& words) { return read_launched_run(words).value_or(LaunchedRun()); };
  EXPECT_EQ(of({"train", "dpo", "--model", kModel, "--data", "pairs.jsonl", "--batch", "6"}).sequences, 12) << "pairs of answers";
  EXPECT_EQ(of({"train", "dpo", "--model", kModel, "--data", "pairs.jsonl", "--name", "d"}).folder, "runs/d");
  EXPECT_EQ(of({"train", "distill", "--model", kModel, "--teachers", "t.toml", "--data", "p.jsonl", "--prompts", "3", "--rollouts", "2"}).sequences, 6);
}

TEST(LaunchedRun, WhatIsWrongIsRefusedAsTheCommandRefusesIt) {
  const auto refused = [](const Arguments& words) -> std::string {
    try {
      read_launched_run(words);
    } catch (const UsageError& e) {
      return e.what();
    }
    return "no error";
  };
  EXPECT_NE(refused({"serve", "--model", "x"}).find("behind -- stands 'serve --model', allowed is train KIND"), std::string::npos);
  EXPECT_NE(refused({}).find("allowed is train KIND"), std::string::npos);
  EXPECT_NE(refused({"train", "nothing"}).find("unknown kind 'nothing'"), std::string::npos);
  EXPECT_NE(refused({"train", "grpo"}).find("lockstep train rl --algorithm grpo"), std::string::npos);
  EXPECT_NE(refused({"train", "sft", "--modle", "x"}).find("did you mean '--model'"), std::string::npos);
  EXPECT_NE(refused({"train", "sft", "--model", kModel, "--transport", "threads"}).find("--transport is threads"), std::string::npos);
  // The next table is an ordinary one again.
  bool flag = false;
  OptionTable table("x", "X.", {});
  table.flag("on", &flag, "On");
  EXPECT_TRUE(table.parse({"--on"}));
}

TEST(LayoutChoice, ALayoutThatIsNamedHolds) {
  LayoutChoice choice(launched({}), {.ranks = "tp=2,dp=2"});
  EXPECT_EQ(choice({{"a", 2}, {"b", 2}}).ranks, (RankLayout{2, 2, 1}));
  EXPECT_EQ(choice({{"a", 2}, {"b", 2}}).processes, 4);
  EXPECT_EQ(choice({{"a", 3}}).processes, 3) << "with fewer slots some processes have several ranks";
  EXPECT_EQ(choice({{"a", 3}}).ranks, (RankLayout{2, 2, 1}));
  EXPECT_EQ(choice({{"a", 9}}).processes, 4) << "a process has at least one rank";
  EXPECT_EQ(LayoutChoice(launched({"--ranks", "dp=3"}), {})({{"a", 9}}).ranks, (RankLayout{1, 3, 1})) << "behind -- it may stand too";
}

TEST(LayoutChoice, AutoTakesTheFirstThatSimulateLists) {
  const LaunchedRun run = launched({"--batch", "8", "--micro-batch", "4"});
  LayoutChoice choice(run, {.device = "h200", .length = 64});
  const std::shared_ptr<const Model> model = planned_model(run.runtime);
  StepPlan plan;
  plan.sequences = simulated_sequences(8 * 64, 64);
  plan.trainer.micro_batch = 4;
  for (const int slots : {1, 2, 4, 6}) {
    const std::vector<SimulatedStep> steps =
        simulate_layouts(model, profile_by_name(run.runtime.profile), plan, layouts_of(*model, slots, 64), published_devices().front());
    const LaunchLayout chosen = choice({{"a", slots}});
    EXPECT_EQ(chosen.ranks, steps.front().layout) << slots;
    EXPECT_EQ(chosen.processes, slots);
    for (const SimulatedStep& other : steps) EXPECT_LE(steps.front().slow.total(), other.slow.total()) << other.layout.text();
  }
}

// Two hosts of two devices: a layout whose traffic stays within a host is preferred where the way between hosts is narrow.
TEST(LayoutChoice, HostsDecideWhatCrossesTheNetwork) {
  const LaunchedRun run = launched({"--batch", "8"});
  const std::shared_ptr<const Model> model = planned_model(run.runtime);
  StepPlan plan;
  plan.sequences = simulated_sequences(8 * 64, 64);
  DeviceRates narrow = published_devices().front();
  narrow.host_devices = 2;
  const RankLayout over_two = LayoutChoice(run, {.device = "h200", .length = 64})({{"a", 2}, {"b", 2}}).ranks;
  EXPECT_EQ(over_two, simulate_layouts(model, profile_by_name(run.runtime.profile), plan, layouts_of(*model, 4, 64), narrow).front().layout);
}

TEST(LayoutChoice, WhatIsNoLayoutIsRefused) {
  EXPECT_THROW(LayoutChoice(launched({}), {.ranks = "tp=65"}), Error);
  EXPECT_THROW(LayoutChoice(launched({"--ranks", "sp=2"}), {}), Error);
}

}  // namespace
}  // namespace lockstep
