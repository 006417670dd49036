// Rollouts of many turns with a real engine and trainer: a model that was shown a few reference rollouts opens doors and writes summaries, and every token
// of every window has the trainer's bits; a stopped run goes on to the same ones. What is learned is not asked: bits are the same on every machine, so that
// this model opens doors here means that it does so everywhere.
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "jobs/rl_job.h"
#include "jobs/sft_job.h"

namespace lockstep {
namespace {
namespace fs = std::filesystem;

class LockboxJobs : public testing::Test {
 protected:
  static void SetUpTestSuite() { taught() = run_sft_job(sft("taught", 29)).exported; }
  static void TearDownTestSuite() { fs::remove_all(root()); }
  static fs::path root() { return fs::path(testing::TempDir()) / ("lockstep_lockbox_jobs_" + std::to_string(::getpid())); }
  // The folder of the model that all tests begin from.
  static std::string& taught() {
    static std::string folder;
    return folder;
  }
  static void common(RunSettings& run, RuntimeSettings& runtime, const std::string& name) {
    run.name = name;
    run.runs = root().string();
    run.quiet = true;
    runtime.model = (fs::path(LOCKSTEP_SOURCE_DIR) / "models/countdown-glm").string();
    runtime.threads = 1;
  }
  static SftJob sft(const std::string& name, std::int64_t compact_at) {
    SftJob job;
    common(job.config.run, job.config.runtime, name);
    job.environment = "lockbox";
    job.compact_at = compact_at;
    job.config.asked.batch = 2;  // problems, of some twenty windows each
    job.config.asked.steps = 60;
    job.config.asked.learning_rate = 2e-3;
    job.config.asked.warmup = 5;
    return job;
  }
  static RlJob rl(const std::string& name) {
    RlJob job;
    common(job.run, job.stack.runtime, name);
    job.stack.runtime.model = taught();
    job.run.checkpoint_every = 1;
    job.rl.environment = "lockbox";
    job.rl.compact_at = 29;  // the second door that is opened ends the first window, each one behind it another
    job.rl.steps = 2;
    job.rl.problems = 24;
    job.rl.rollouts = 4;
    job.rl.warmup = 0;
    job.rl.loss_config = {"entropy_coefficient=0.05"};  // nobody opens all doors yet: what is learned is to be less sure
    return job;
  }
  static std::vector<nlohmann::json> lines_of(const std::string& name, const std::string& file) {
    std::ifstream in(root() / name / file);
    std::vector<nlohmann::json> lines;
    for (std::string line; std::getline(in, line);) lines.push_back(nlohmann::json::parse(line));
    return lines;
  }
  // The bits of the whole run are those of the sampler, and those of one that was stopped after its first step and goes on.
  static void whole_and_in_parts(RlJob job) {
    const std::string name = job.run.name;
    const RlSummary whole = run_rl(job);
    ASSERT_TRUE(whole.finished) << name;
    EXPECT_EQ(whole.totals.kl.different_bits, 0) << name;
    EXPECT_GT(whole.totals.kl.tokens, 0) << name;
    const std::vector<nlohmann::json> steps = lines_of(name, "metrics.jsonl");
    ASSERT_EQ(steps.size(), 2u) << name;
    for (const nlohmann::json& line : steps) {
      EXPECT_GT(line.at("chains"), 1.0) << name << ": no rollout has a second window, and this shows little";
      EXPECT_GT(line.at("turns"), line.at("chains")) << name;
      EXPECT_GT(line.at("gradient_norm"), 0.0) << name;
    }
    StopSource source;
    job.run.name += "-parts";
    job.run.stop = source.token();
    job.run.on_step = [&](std::int64_t step) {
      if (step == 1) source.stop();
    };
    EXPECT_FALSE(run_rl(job).finished) << name;
    job.run.resume = true;
    job.run.stop = {};
    job.run.on_step = {};
    EXPECT_EQ(run_rl(job).weights_sha256, whole.weights_sha256) << name;
  }
};

TEST_F(LockboxJobs, WindowsAreSequencesOfWhichWhatWasWrittenIsTrained) {
  ASSERT_FALSE(taught().empty());
  std::size_t later = 0, summaries = 0;
  for (const nlohmann::json& line : lines_of("taught", "transcripts.jsonl")) {
    std::string text, trained;
    for (std::size_t i = 0; i < line.at("tokens").size(); ++i) {
      text += line.at("tokens")[i].get<std::string>();
      if (line.at("weights")[i] != 0) trained += line.at("tokens")[i].get<std::string>();
    }
    EXPECT_EQ(trained.find_first_of("?#="), std::string::npos) << trained;  // what was shown
    EXPECT_NE(trained.find_first_of("0123456789"), std::string::npos) << text;
    summaries += text.find('#') != std::string::npos;
    later += text.find('?') != std::string::npos;
  }
  EXPECT_GT(summaries, 0u);
  EXPECT_GT(later, 0u);
}

TEST_F(LockboxJobs, EveryTokenOfEveryWindowHasTheTrainersBits) { whole_and_in_parts(rl("groups")); }

TEST_F(LockboxJobs, SoItHasWhereLikelyTokensAloneAreDrawn) {
  RlJob job = rl("cut");
  job.rl.temperature = 0.7, job.rl.top_k = 40, job.rl.top_p = 0.95;
  whole_and_in_parts(job);
}

TEST_F(LockboxJobs, SoItHasWhereSummariesCountAsShown) {
  RlJob job = rl("hidden");
  job.rl.train_summaries = false;
  whole_and_in_parts(job);
}

TEST_F(LockboxJobs, SoItHasWithACritic) {
  RlJob job = rl("critic");
  job.rl.rollouts = 1;
  job.rl.problems = 96;
  job.rl.advantages = std::string(kGaeAdvantages);
  job.rl.critic.kind = "full";
  job.rl.critic.bootstrap = true;
  whole_and_in_parts(job);
}

// The controls: where summaries stand decides the bits of a run, and another profile's numbers differ.
TEST_F(LockboxJobs, WhatMattersIsSeen) {
  RlJob usual = rl("usual"), other = rl("other"), mixed = rl("mixed");
  other.rl.compact_at = 40;
  mixed.stack.rollout_profile = "study-bf16-activations";
  mixed.allow_profile_mix = true;
  const std::string weights = run_rl(usual).weights_sha256;
  const RlSummary moved = run_rl(other);
  EXPECT_EQ(moved.totals.kl.different_bits, 0);
  EXPECT_NE(moved.weights_sha256, weights);
  EXPECT_GT(run_rl(mixed).totals.kl.different_bits, 0);
}

TEST_F(LockboxJobs, ContradictionsAreToldBeforeTheModelIsRead) {
  const auto refusal = [](const std::function<void()>& run) -> std::string {
    try {
      run();
    } catch (const Error& e) {
      return e.what();
    }
    return "accepted";
  };
  RlJob job = rl("wrong");
  job.stack.runtime.model = "/nowhere";
  job.rl.environment = "countdown";
  EXPECT_NE(refusal([&] { run_rl(job); }).find("compact_at is 29, and the problems of 'countdown' have one answer"), std::string::npos);
  job.rl.environment = "lockbox";
  EXPECT_NE(refusal([&] { run_rl(job); }).find("/nowhere"), std::string::npos);
  SftJob learns = sft("wrong", 29);
  learns.config.runtime.model = "/nowhere";
  learns.environment = "countdown";
  EXPECT_NE(refusal([&] { run_sft_job(learns); }).find("compact_at is 29"), std::string::npos);
  learns.environment = "lockbx";
  EXPECT_NE(refusal([&] { run_sft_job(learns); }).find("did you mean 'lockbox'"), std::string::npos);
}

}  // namespace
}  // namespace lockstep
