// Runs over ranks save a file of each rank while they go on: a stopped one goes on in another layout, or on one rank, to the weights of a run that was never
// stopped, with a critic too; a fork begins with the weights in them; damage is passed over.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "jobs/job_test_tools.h"
#include "jobs/rl_job.h"
#include "jobs/sft_job.h"
#include "runs/training_state.h"
#include "trained/share_files.h"

namespace lockstep {
namespace {
namespace fs = std::filesystem;

class RankCheckpoints : public testing::Test {
 protected:
  ~RankCheckpoints() override { fs::remove_all(root_); }
  SftJob sft(const std::string& name, const std::string& ranks) const {
    SftJob job;
    settings_of_run(job.config.run, job.config.runtime, root_, name);
    job.config.run.checkpoint_every = 1;
    job.config.runtime.ranks = ranks;
    job.environment = "countdown";
    job.config.asked.steps = 4;
    job.config.asked.batch = 4;
    return job;
  }
  RlJob rl(const std::string& name, const std::string& ranks, const std::string& critic) const {
    RlJob job;
    settings_of_run(job.run, job.stack.runtime, root_, name);
    job.run.checkpoint_every = 1;
    job.stack.runtime.ranks = ranks;
    job.rl.steps = 4;
    job.rl.problems = job.rl.rollouts = 2;
    job.rl.warmup = 0;
    if (!critic.empty()) {
      job.rl.advantages = std::string(kGaeAdvantages);
      job.rl.critic.kind = critic;
      job.rl.critic.learning_rate = 1e-3;
    }
    return job;
  }
  // Until that step, as SIGTERM stops it.
  static void stop_after(RunSettings& run, StopSource& source, std::int64_t last) {
    run.stop = source.token();
    run.on_step = [&source, last](std::int64_t step) {
      if (step == last) source.stop();
    };
  }
  fs::path newest(const std::string& run, const std::string& part = "") const { return newest_checkpoint(root_ / run / part); }
  static int files_of_ranks(const fs::path& checkpoint) {
    int count = 0;
    while (fs::exists(checkpoint / share_file_name(count))) ++count;
    return count;
  }
  fs::path root_ = fs::path(testing::TempDir()) / ("lockstep_rank_checkpoints_" + std::to_string(::getpid()));
};

TEST_F(RankCheckpoints, ARunGoesOnInOtherLayouts) {
  const SftSummary whole = run_sft_job(sft("whole", ""));
  EXPECT_TRUE(fs::exists(newest("whole") / "state.safetensors"));
  EXPECT_EQ(files_of_ranks(newest("whole")), 0);
  std::int64_t last = 1;
  for (const auto& [ranks, files] : {std::pair<std::string, int>{"dp=2", 2}, {"tp=2,dp=2,shard=weights", 4}, {"pp=2", 2}, {"", 0}}) {
    SftJob job = sft("parts", ranks);
    StopSource source;
    if (last < 4) stop_after(job.config.run, source, last);
    job.config.run.resume = last > 1;
    const SftSummary part = run_sft_job(job);
    EXPECT_EQ(files_of_ranks(newest("parts")), files) << ranks;
    EXPECT_EQ(newest("parts").filename(), checkpoint_name(last)) << ranks;
    if (last == 4) EXPECT_EQ(part.weights_sha256, whole.weights_sha256);
    else EXPECT_NE(part.weights_sha256, whole.weights_sha256);
    ++last;
  }
  // A line of a run over ranks has the seconds of the save before it.
  run_sft_job(sft("ranks", "dp=2"));
  double seconds = 0;
  for (const nlohmann::json& line : metrics_of(root_ / "ranks")) {
    const double own = line.at("ranks_saving_seconds").get<double>();
    if (line.at("step") == 1) EXPECT_EQ(own, 0);
    else EXPECT_GT(own, 0);
    seconds += own;
  }
  EXPECT_LT(seconds, 60);
}

TEST_F(RankCheckpoints, APolicyAndItsCriticGoOnInOtherLayouts) {
  for (const std::string critic : {"full", "adapter"}) {
    const RlSummary whole = run_rl(rl("whole-" + critic, "", critic));
    RlJob first = rl("parts-" + critic, "dp=2", critic);
    StopSource source;
    stop_after(first.run, source, 2);
    EXPECT_FALSE(run_rl(first).finished);
    EXPECT_EQ(files_of_ranks(newest("parts-" + critic)), 2);
    EXPECT_EQ(files_of_ranks(newest("parts-" + critic, "critic")), 2);
    RlJob rest = rl("parts-" + critic, "tp=2", critic);
    rest.run.resume = true;
    const RlSummary end = run_rl(rest);
    EXPECT_TRUE(end.finished);
    EXPECT_EQ(end.weights_sha256, whole.weights_sha256) << critic;
    EXPECT_EQ(end.critic_sha256, whole.critic_sha256) << critic;
  }
}

TEST_F(RankCheckpoints, AForkBeginsWithTheirWeightsWhateverItsLayout) {
  run_sft_job(sft("old", "dp=2"));
  std::string want;
  for (const std::string ranks : {"", "tp=2,dp=2", "dp=3,shard=weights"}) {
    SftJob job = sft("fork" + std::to_string(ranks.size()), ranks);
    job.config.run.resolved["forked_from"] = newest("old").string();
    job.config.asked.steps = 2;
    const std::string got = run_sft_job(job).weights_sha256;
    if (want.empty()) want = got;
    EXPECT_EQ(got, want) << ranks;
  }
  SftJob other = sft("fresh", "dp=2");  // the control
  other.config.asked.steps = 2;
  EXPECT_NE(run_sft_job(other).weights_sha256, want);
}

TEST_F(RankCheckpoints, ADamagedOneIsPassedOver) {
  const SftSummary whole = run_sft_job(sft("whole", ""));
  for (const std::string& damage : {std::string("missing"), std::string("block")}) {
    SftJob first = sft(damage, "dp=2");
    StopSource source;
    stop_after(first.config.run, source, 3);
    run_sft_job(first);
    const fs::path file = newest(damage) / share_file_name(1);
    if (damage == "missing") {
      fs::remove(file);
    } else {
      std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
      bytes.seekg(1000);
      const char byte = static_cast<char>(bytes.get() ^ 1);
      bytes.seekp(1000);
      bytes.put(byte);
    }
    SftJob rest = sft(damage, "tp=2");
    rest.config.run.resume = true;
    EXPECT_EQ(run_sft_job(rest).weights_sha256, whole.weights_sha256) << damage;
    EXPECT_EQ(metrics_of(root_ / damage).size(), 4u) << damage;
  }
}

}  // namespace
}  // namespace lockstep
