// Reinforcement learning with a critic, from single rollouts: it learns beside the policy, whose bits stay those of its sampler; a stopped run and
// one that was killed between the two checkpoints go on to the same bits.
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <set>

#include "base/error.h"
#include "jobs/job_test_tools.h"
#include "jobs/rl_job.h"

namespace lockstep {
namespace {
namespace fs = std::filesystem;

class CriticJobs : public testing::Test {
 protected:
  ~CriticJobs() override { fs::remove_all(root_); }
  RlJob job(const std::string& name, const std::string& kind = "full") {
    RlJob made;
    settings_of_run(made.run, made.stack.runtime, root_, name);
    made.run.checkpoint_every = 2;
    made.rl.steps = 6;
    made.rl.problems = 8;
    made.rl.rollouts = 1;
    made.rl.warmup = 0;
    made.rl.advantages = std::string(kGaeAdvantages);
    made.rl.critic.kind = kind;
    made.rl.critic.warmup = 1;
    made.rl.critic.learning_rate = kind == "adapter" ? 3e-3 : 3e-4;
    made.rl.critic.epochs = 2;
    made.rl.critic.clip = 0.5;
    return made;
  }
  std::vector<nlohmann::json> metrics(const std::string& name) { return metrics_of(root_ / name); }
  // Their names are in the order of steps.
  static std::set<fs::path> checkpoints_in(const fs::path& folder) {
    std::set<fs::path> all;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder))
      if (entry.is_directory()) all.insert(entry.path());
    return all;
  }
  static void drop_newest(const fs::path& folder) {
    fs::remove_all(*checkpoints_in(folder).rbegin());
    fs::remove(folder / "latest");
  }
  fs::path root_ = fs::path(testing::TempDir()) / ("lockstep_critic_jobs_" + std::to_string(::getpid()));
};

TEST_F(CriticJobs, LearnsFromSingleRolloutsAndGoesOnToTheSameBits) {
  for (const std::string kind : {"full", "adapter"}) {
    const RlSummary whole = run_rl(job(kind + "-whole", kind));
    ASSERT_TRUE(whole.finished) << kind;
    EXPECT_EQ(whole.totals.kl.different_bits, 0) << kind;
    EXPECT_GT(whole.totals.kl.tokens, 0) << kind;
    EXPECT_TRUE(fs::exists(whole.critic_exported / (kind == "full" ? "config.json" : "adapter_config.json"))) << kind;
    const std::vector<nlohmann::json> steps = metrics(kind + "-whole");
    ASSERT_EQ(steps.size(), 6u);
    EXPECT_EQ(steps[0].at("gradient_norm"), 0) << kind;  // the critic's warm-up
    EXPECT_GT(steps[1].at("gradient_norm"), 0) << kind;
    EXPECT_EQ(steps[0].at("mean_value"), 0) << kind;  // a head of zeros
    EXPECT_NE(steps[1].at("mean_value"), 0) << kind;
    for (const char* name : {"value_loss", "explained_variance", "mean_return", "advantage_min", "advantage_median", "advantage_max", "critic_gradient_norm"})
      EXPECT_TRUE(steps[3].at(name).is_number()) << name;
    EXPECT_LT(steps[3].at("advantage_min"), steps[3].at("advantage_max")) << kind;  // a token's own, though a group has one rollout

    StopSource source;
    RlJob parts = job(kind + "-parts", kind);
    parts.stack.micro_batch = 3;
    parts.run.stop = source.token();
    parts.run.on_step = [&](std::int64_t step) {
      if (step == 3) source.stop();
    };
    EXPECT_FALSE(run_rl(parts).finished) << kind;
    parts.run.resume = true;
    parts.run.stop = {};
    const RlSummary rest = run_rl(parts);
    ASSERT_TRUE(rest.finished) << kind;
    EXPECT_EQ(rest.weights_sha256, whole.weights_sha256) << kind;
    EXPECT_EQ(rest.critic_sha256, whole.critic_sha256) << kind;
    if (kind != "full") continue;
    RlJob wrong = job("wrong");  // a critic is no policy
    wrong.stack.runtime.model = whole.critic_exported.string();
    try {
      run_rl(wrong);
      ADD_FAILURE();
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find("value head"), std::string::npos) << e.what();
    }
  }
}

// Micro-batches as large as the batch have the rows of one pass, and their forward is computed twice: for the values, and for their gradient.
TEST_F(CriticJobs, AStepComputesTheForwardOfItsValuesOnce) {
  for (const std::int64_t rank : {0, 4}) {
    const auto rows_of = [&](std::int64_t micro_batch) {
      RlStackSettings settings = job("rows").stack;
      settings.micro_batch = micro_batch;
      settings.critic = TrainedSettings{.rank = rank, .seed = 1};
      RlStack stack(settings);
      std::vector<ValueDatum> data(2);
      for (std::size_t s = 0; s < data.size(); ++s) {
        for (std::int32_t i = 0; i < 12; ++i) data[s].tokens.push_back(static_cast<std::int32_t>(5 + s) * (i + 1) % 90);
        data[s].weights.assign(12, 1.0f), data[s].returns.assign(12, 0.5f), data[s].values.assign(12, 0.0f);
      }
      stack.critic()->values(data);
      stack.critic()->forward_backward(data, 0);
      return work_of(stack.critic()->trainer()).segment_rows.made;
    };
    const std::int64_t once = rows_of(0);
    EXPECT_GT(once, 0) << rank;
    EXPECT_EQ(rows_of(2), 2 * once) << rank;
  }
}

// Contexts of 512 positions are too short to be cut among ranks: a run says so once, and not of its critic again.
TEST_F(CriticJobs, RanksWithNothingToDoAreSaidOnce) {
  for (const bool judged : {false, true}) {
    RlStackSettings settings = job("ranks").stack;
    settings.runtime.ranks = "cp=2";
    if (judged) settings.critic = TrainedSettings{.rank = 0, .seed = 1};
    testing::internal::CaptureStderr();
    { const RlStack stack(settings); }
    const std::string log = testing::internal::GetCapturedStderr(), said = "cp=2 cuts longer sequences";
    const std::size_t first = log.find(said);
    ASSERT_NE(first, std::string::npos) << log;
    EXPECT_EQ(log.find(said, first + 1), std::string::npos) << log;
  }
}

// As if the process had been killed when the critic's checkpoint was there and the policy's of that step was not.
TEST_F(CriticJobs, AKillBetweenTheCheckpointsLeavesBothOfOneStep) {
  RlJob first = job("killed");
  const RlSummary whole = run_rl(first);
  const fs::path checkpoints = root_ / "killed" / "checkpoints";
  ASSERT_GE(checkpoints_in(checkpoints).size(), 2u);
  drop_newest(checkpoints);
  first.run.resume = true;
  const RlSummary again = run_rl(first);
  EXPECT_GT(again.totals.steps, 0);
  EXPECT_EQ(again.weights_sha256, whole.weights_sha256);
  EXPECT_EQ(again.critic_sha256, whole.critic_sha256);
  // The control: without the critic's own checkpoint of that step it does not go on with another one.
  drop_newest(checkpoints);
  fs::remove_all(root_ / "killed" / "critic" / "checkpoints");
  EXPECT_THROW(run_rl(first), Error);
}

TEST_F(CriticJobs, ContradictionsAreToldBeforeTheModelIsLoaded) {
  const auto refusal = [&](const std::function<void(RlJob&)>& change) -> std::string {
    RlJob wrong = job("wrong");
    wrong.stack.runtime.model = "/nowhere";
    change(wrong);
    try {
      run_rl(wrong);
    } catch (const Error& e) {
      return e.what();
    }
    return "accepted";
  };
  EXPECT_NE(refusal([](RlJob& j) { j.rl.critic.kind = "none"; }).find("critic is none"), std::string::npos);
  EXPECT_NE(refusal([](RlJob& j) { j.rl.critic.kind = "ful"; }).find("did you mean"), std::string::npos);
  EXPECT_NE(refusal([](RlJob& j) { j.rl.advantages = "batch-whitened"; }).find("do not use it"), std::string::npos);
  EXPECT_NE(refusal([](RlJob& j) { j.rl.critic.gae.lambda = 2; }).find("lambda is 2"), std::string::npos);
  const auto parted = [](RlJob& j) { j.rl.rollouts = 4, j.rl.share_prompts = "backward", j.stack.micro_batch = 3; };
  EXPECT_NE(refusal(parted).find("micro_batch is 3, and the 4 rollouts"), std::string::npos) << refusal(parted);
  EXPECT_NE(refusal([](RlJob&) {}).find("/nowhere"), std::string::npos);
}

}  // namespace
}  // namespace lockstep
