// Rollouts of many turns with a real engine and trainer: a model that knows two problems almost by heart plays them through up to four windows, and every
// token of every window has the trainer's bits; a stopped run goes on to the same ones. Bits are the same on every machine: as far as it comes here it comes
// everywhere.
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "jobs/rl_job.h"
#include "jobs/sft_job.h"
#include "rl/trajectory/reference.h"

namespace lockstep {
namespace {
namespace fs = std::filesystem;

class LockboxJobs : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    fs::create_directories(root());
    SftJob job = sft("taught", 60);
    job.environment.clear();
    job.compact_at = 0;
    job.data = (root() / "rollouts.jsonl").string();
    write_references(job.data);
    taught() = run_sft_job(job).exported;
  }
  static void TearDownTestSuite() { fs::remove_all(root()); }
  // The reference rollouts of the two problems that a run of two steps plays, a line a window.
  static void write_references(const std::string& path) {
    const auto environment = make_environment("lockbox");
    const Tokenizer tokenizer = Tokenizer::from_file(std::string(LOCKSTEP_SOURCE_DIR) + "/models/countdown-glm/tokenizer.json");
    constexpr std::int32_t kEnd = 102;
    std::ofstream out(path);
    for (std::uint64_t index = 0; index < 2; ++index)
      for (const Chain& chain : reference_rollout(*environment, environment->problem(Split::train, 1, index), tokenizer, kEnd, {.compact_at = 72}).chains) {
        WeightedTokens all = weighted_tokens(chain);
        all.weights.erase(all.weights.begin());  // one a target
        out << nlohmann::json{{"tokens", all.tokens}, {"weights", all.weights}} << "\n";
      }
  }
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
  static SftJob sft(const std::string& name, std::int64_t steps) {
    SftJob job;
    common(job.config.run, job.config.runtime, name);
    job.environment = "lockbox";
    job.compact_at = 72;
    job.config.asked.batch = 8;
    job.config.asked.steps = steps;
    job.config.asked.learning_rate = 4e-3;
    job.config.asked.warmup = 5;
    job.config.asked.schedule = "linear";
    job.eval_share = 0;
    return job;
  }
  static RlJob rl(const std::string& name) {
    RlJob job;
    common(job.run, job.stack.runtime, name);
    job.stack.runtime.model = taught();
    job.run.checkpoint_every = 1;
    job.rl.environment = "lockbox";
    job.rl.compact_at = 72;
    job.rl.steps = 2;
    job.rl.problems = 1;
    job.rl.rollouts = 16;
    job.rl.warmup = 0;
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
      EXPECT_GT(line.at("chains"), 2.0) << name << ": rollouts have few windows, and this shows little";
      EXPECT_GT(line.at("turns"), 10.0) << name;
      EXPECT_GT(line.at("reward"), 0.0) << name;
      EXPECT_LT(line.at("reward"), 1.0) << name;
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
  SftJob job = sft("windows", 1);
  job.config.transcripts = 1000;
  run_sft_job(job);
  std::size_t sequences = 0, later = 0, summaries = 0;
  for (const nlohmann::json& line : lines_of("windows", "transcripts.jsonl")) {
    std::string text, trained;
    for (std::size_t i = 0; i < line.at("tokens").size(); ++i) {
      text += line.at("tokens")[i].get<std::string>();
      if (line.at("weights")[i] != 0) trained += line.at("tokens")[i].get<std::string>();
    }
    EXPECT_EQ(trained.find_first_of("?#="), std::string::npos) << trained;  // what was shown
    EXPECT_NE(trained.find_first_of("0123456789"), std::string::npos) << text;
    ++sequences;
    summaries += text.find('#') != std::string::npos;
    later += text.find('?') != std::string::npos;
  }
  EXPECT_EQ(sequences, 8u * 4);
  EXPECT_EQ(summaries, 8u * 3);
  EXPECT_GE(later, 8u * 3);
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
  EXPECT_NE(refusal([&] { run_rl(job); }).find("compact_at is 72, and the problems of 'countdown' have one answer"), std::string::npos);
  job.rl.environment = "lockbox";
  EXPECT_NE(refusal([&] { run_rl(job); }).find("/nowhere"), std::string::npos);
  SftJob learns = sft("wrong", 1);
  learns.config.runtime.model = "/nowhere";
  learns.environment = "countdown";
  EXPECT_NE(refusal([&] { run_sft_job(learns); }).find("compact_at is 72"), std::string::npos);
  learns.environment = "lockbx";
  EXPECT_NE(refusal([&] { run_sft_job(learns); }).find("did you mean 'lockbox'"), std::string::npos);
}

}  // namespace
}  // namespace lockstep
