// Rollouts of many turns with a real engine and trainer: a model that was shown a few reference rollouts opens some doors, writes summaries, and every
// token of every window has the trainer's bits; a stopped run goes on to the same ones.
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "jobs/rl_job.h"
#include "jobs/sft_job.h"

namespace lockstep {
namespace {
namespace fs = std::filesystem;

class LockboxJobs : public testing::Test {
 protected:
  ~LockboxJobs() override { fs::remove_all(root_); }
  void common(RunSettings& run, RuntimeSettings& runtime, const std::string& name) {
    run.name = name;
    run.runs = root_.string();
    run.quiet = true;
    runtime.model = (fs::path(LOCKSTEP_SOURCE_DIR) / "models/countdown-glm").string();
    runtime.threads = 1;
  }
  SftJob sft(const std::string& name, std::int64_t compact_at) {
    SftJob job;
    common(job.config.run, job.config.runtime, name);
    job.environment = "lockbox";
    job.compact_at = compact_at;
    job.config.asked.batch = 4;
    job.config.asked.steps = 40;
    job.config.asked.learning_rate = 2e-3;
    job.config.asked.warmup = 5;
    return job;
  }
  RlJob rl(const std::string& name, const std::string& model) {
    RlJob job;
    common(job.run, job.stack.runtime, name);
    job.stack.runtime.model = model;
    job.run.checkpoint_every = 1;
    job.rl.environment = "lockbox";
    job.rl.compact_at = 40;
    job.rl.steps = 2;
    job.rl.problems = 6;
    job.rl.rollouts = 4;
    job.rl.warmup = 0;
    job.rl.loss_config = {"entropy_coefficient=0.05"};  // nobody opens all doors yet: what is learned is to be less sure
    return job;
  }
  std::vector<nlohmann::json> lines_of(const std::string& name, const std::string& file) {
    std::ifstream in(root_ / name / file);
    std::vector<nlohmann::json> lines;
    for (std::string line; std::getline(in, line);) lines.push_back(nlohmann::json::parse(line));
    return lines;
  }
  fs::path root_ = fs::path(testing::TempDir()) / ("lockstep_lockbox_jobs_" + std::to_string(::getpid()));
};

TEST_F(LockboxJobs, EveryTokenOfEveryWindowHasTheTrainersBits) {
  const SftSummary taught = run_sft_job(sft("taught", 40));
  ASSERT_FALSE(taught.exported.empty());
  bool windows = false, summaries = false;
  for (const nlohmann::json& line : lines_of("taught", "transcripts.jsonl")) {  // windows are sequences, and what is shown in them is not trained
    std::size_t trained = 0, hidden = 0;
    for (const nlohmann::json& weight : line.at("weights")) ++(weight == 0 ? hidden : trained);
    windows = windows || (trained > 0 && hidden > 0);
    const std::string text = [&] {
      std::string all;
      for (const nlohmann::json& piece : line.at("tokens")) all += piece.get<std::string>();
      return all;
    }();
    summaries = summaries || text.find('#') != std::string::npos;
  }
  EXPECT_TRUE(windows);
  EXPECT_TRUE(summaries);

  for (const char* kind : {"groups", "critic", "cut"}) {
    RlJob job = rl(kind, taught.exported);
    if (std::string(kind) == "critic") {
      job.rl.rollouts = 1;
      job.rl.problems = 24;
      job.rl.advantages = std::string(kGaeAdvantages);
      job.rl.critic.kind = "full";
      job.rl.critic.bootstrap = true;
    }
    if (std::string(kind) == "cut") job.rl.temperature = 0.7, job.rl.top_k = 40, job.rl.top_p = 0.95;
    const RlSummary whole = run_rl(job);
    ASSERT_TRUE(whole.finished) << kind;
    EXPECT_EQ(whole.totals.kl.different_bits, 0) << kind;
    EXPECT_GT(whole.totals.kl.tokens, 0) << kind;
    double turns = 0;
    for (const nlohmann::json& line : lines_of(kind, "metrics.jsonl")) turns = std::max(turns, line.at("turns").get<double>());
    EXPECT_GT(turns, 1) << kind;  // doors were opened, or this shows little

    StopSource source;
    job.run.name += "-parts";
    job.run.stop = source.token();
    job.run.on_step = [&](std::int64_t step) {
      if (step == 1) source.stop();
    };
    EXPECT_FALSE(run_rl(job).finished) << kind;
    job.run.resume = true;
    job.run.stop = {};
    job.run.on_step = {};
    EXPECT_EQ(run_rl(job).weights_sha256, whole.weights_sha256) << kind;
  }
  // The control: another place of the summaries is another run.
  RlJob other = rl("other", taught.exported);
  other.rl.compact_at = 22;
  const RlSummary moved = run_rl(other);
  EXPECT_EQ(moved.totals.kl.different_bits, 0);
  EXPECT_NE(moved.weights_sha256, run_rl(rl("again", taught.exported)).weights_sha256);
}

TEST_F(LockboxJobs, ContradictionsAreTold) {
  RlJob job = rl("wrong", "/nowhere");
  job.rl.environment = "countdown";
  EXPECT_THROW(run_rl(job), Error);
  try {
    run_rl(job);
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("compact_at is 40"), std::string::npos) << e.what();  // before the model is looked for
  }
  SftJob taught = sft("wrong", 40);
  taught.environment = "countdown";
  EXPECT_THROW(run_sft_job(taught), Error);
}

}  // namespace
}  // namespace lockstep
