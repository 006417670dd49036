// A correction where sampler and trainer have the same numbers moves no bit of a run, which says so when it begins; under another rollout profile it is silent.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include "jobs/job_test_tools.h"
#include "jobs/rl_job.h"

namespace lockstep {
namespace {
namespace fs = std::filesystem;

TEST(CorrectionJobs, OneThatChangesNothingIsSaidToBeSo) {
  const fs::path root = fs::path(testing::TempDir()) / ("lockstep_correction_jobs_" + std::to_string(::getpid()));
  fs::create_directories(root);
  struct Made {
    bool said = false;
    std::string weights;
  };
  const auto made = [&](const std::string& name, const std::string& correction, const std::string& rollouts) {
    RlJob job;
    settings_of_run(job.run, job.stack.runtime, root, name);
    job.rl.steps = 1;
    job.rl.problems = 1;
    job.rl.rollouts = 4;
    job.rl.max_tokens = 8;
    job.rl.warmup = 0;
    job.rl.loss_config = {"entropy_coefficient=0.05"};  // a signal without rewards
    job.rl.correction = correction;
    job.stack.rollout_profile = rollouts;
    job.allow_profile_mix = !rollouts.empty();
    std::vector<std::string> lines;
    job.run.say = [&lines](const std::string& line) { lines.push_back(line); };
    Made run;
    run.weights = run_rl(job).weights_sha256;
    run.said = std::any_of(lines.begin(), lines.end(), [](const std::string& line) { return line.starts_with("the correction changes nothing: "); });
    return run;
  };
  const Made plain = made("plain", "none", ""), idle = made("idle", "tis", ""), mixed = made("mixed", "tis", "study-bf16-activations");
  EXPECT_FALSE(plain.said);
  EXPECT_TRUE(idle.said);
  EXPECT_EQ(idle.weights, plain.weights);
  EXPECT_FALSE(mixed.said);
  fs::remove_all(root);
}

}  // namespace
}  // namespace lockstep
