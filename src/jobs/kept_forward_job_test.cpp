// Reinforcement learning whose trainer reads the forwards that its engine kept (docs/kept-forwards.md) ends with the weights of a run that computes
// them, to the bit; and where rows were dropped, or the weights have moved on, they are computed.
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <functional>

#include "base/error.h"
#include "jobs/job_test_tools.h"
#include "jobs/rl_job.h"

namespace lockstep {
namespace {
namespace fs = std::filesystem;

class KeptForwardJobs : public testing::Test {
 protected:
  ~KeptForwardJobs() override { fs::remove_all(root_); }
  using Change = std::function<void(RlJob&)>;
  RlSummary run(const std::string& name, const Change& change) {
    RlJob made;
    settings_of_run(made.run, made.stack.runtime, root_, name);
    made.rl.steps = 2;
    made.rl.problems = 3;
    made.rl.rollouts = 4;
    made.rl.max_tokens = 14;
    made.rl.warmup = 0;
    made.rl.learning_rate = 1e-3;
    change(made);
    return run_rl(made);
  }
  std::vector<nlohmann::json> metrics(const std::string& name) { return metrics_of(root_ / name); }
  fs::path root_ = fs::path(testing::TempDir()) / ("lockstep_kept_forward_jobs_" + std::to_string(::getpid()));
};

TEST_F(KeptForwardJobs, EndWithTheWeightsOfOnesThatComputeAll) {
  const std::pair<std::string, Change> kinds[] = {
      {"plain", [](RlJob&) {}},
      {"checkpointed", [](RlJob& j) { j.stack.checkpoint_activations = true, j.stack.micro_batch = 5; }},
      {"adapter", [](RlJob& j) { j.stack.trained.rank = 4; }},
      {"declared", [](RlJob& j) { j.rl.share_prompts = "backward"; }},
  };
  for (const auto& [kind, change] : kinds) {
    const RlSummary off = run(kind + "-off", change);
    ASSERT_TRUE(off.finished);
    EXPECT_FALSE(metrics(kind + "-off")[0].contains("rows_kept"));
    EXPECT_GT(metrics(kind + "-off")[0].at("gradient_norm"), 0);  // there is something to learn
    for (const std::string mode : {"inputs", "all"}) {
      const std::string name = kind + "-" + mode;
      const RlSummary kept = run(name, [&](RlJob& j) { change(j), j.stack.keep_forward = {mode, 1024, mode == "all" ? 2 : 3}; });
      EXPECT_EQ(kept.weights_sha256, off.weights_sha256) << name;
      EXPECT_EQ(kept.totals.kl.different_bits, 0) << name;
      std::int64_t compared = 0;
      for (const nlohmann::json& step : metrics(name)) {
        EXPECT_EQ(step.at("rows_computed"), 0) << name;
        EXPECT_GT(step.at("rows_kept"), 0) << name;
        EXPECT_EQ(step.at("rows_computed").get<std::int64_t>() + step.at("rows_kept").get<std::int64_t>(), step.at("rows_asked")) << name;
        EXPECT_GT(step.at("rows_sampled"), 0) << name;
        EXPECT_EQ(step.at("kept_rows_dropped"), 0) << name;
        EXPECT_GT(step.at("kept_bytes"), 0) << name;
        compared += step.at("kept_rows_compared").get<std::int64_t>();
      }
      EXPECT_GT(compared, 0) << name;
      if (mode == "inputs") {
        EXPECT_EQ(metrics(name)[0].at("rows_recomputed"), metrics(name)[0].at("rows_kept")) << name;
      }
    }
  }
}

TEST_F(KeptForwardJobs, ComputeWhatIsNotThere) {
  const auto two_updates = [](RlJob& j) { j.rl.mini_batches = 2, j.stack.checkpoint_activations = true; };
  const RlSummary off = run("off", two_updates);
  const RlSummary kept = run("kept", [&](RlJob& j) { two_updates(j), j.stack.keep_forward.mode = "inputs"; });
  EXPECT_EQ(kept.weights_sha256, off.weights_sha256);
  EXPECT_GT(metrics("kept")[0].at("rows_computed"), 0);  // of the second update: of other weights than those that sampled
  EXPECT_GT(metrics("kept")[0].at("rows_kept"), 0);
  const RlSummary little = run("little", [&](RlJob& j) { two_updates(j), j.stack.keep_forward = {"all", 1, 0}; });
  EXPECT_EQ(little.weights_sha256, off.weights_sha256);
  EXPECT_GT(metrics("little")[0].at("kept_rows_dropped"), 0);
  EXPECT_GT(metrics("little")[0].at("rows_computed"), metrics("kept")[0].at("rows_computed"));
}

// The trainer has ranks, and the engine beside it samples on the first one's threads.
TEST_F(KeptForwardJobs, OverRanksTheyEndWithTheSameWeights) {
  const auto plain = [](RlJob& j) { j.stack.checkpoint_activations = true, j.stack.micro_batch = 5; };
  const RlSummary off = run("one-rank", plain);
  struct Way {
    std::string ranks, mode;
    bool reads;
  };
  for (const Way& way : {Way{"dp=2", "all", true}, Way{"tp=2,dp=2", "inputs", true}, Way{"ep=2,cp=2", "inputs", true}, Way{"tp=2", "all", false}}) {
    std::string name = way.ranks + "-" + way.mode;
    std::erase_if(name, [](char c) { return c == '=' || c == ','; });  // tp2dp2-inputs
    const RlSummary kept = run(name, [&](RlJob& j) {
      plain(j);
      j.stack.runtime.ranks = way.ranks;
      j.stack.keep_forward = {way.mode, 1024, 3};
    });
    EXPECT_EQ(kept.weights_sha256, off.weights_sha256) << name;
    EXPECT_EQ(kept.totals.kl.different_bits, 0) << name;
    for (const nlohmann::json& step : metrics(name)) {
      EXPECT_EQ(step.contains("rows_kept"), way.reads) << name;
      if (!way.reads) continue;
      EXPECT_EQ(step.at("rows_computed"), 0) << name;
      EXPECT_GT(step.at("rows_kept"), 0) << name;
      EXPECT_EQ(step.at("rows_kept"), step.at("rows_asked")) << name;
    }
  }
}

// Numbers of another profile are not the trainer's: nothing is kept, and the run is the one that was not to keep anything.
TEST_F(KeptForwardJobs, KeepNothingOfAnotherProfile) {
  const auto mixed = [](RlJob& j) { j.stack.rollout_profile = "study-bf16-activations", j.allow_profile_mix = true; };
  const RlSummary off = run("mixed-off", mixed);
  EXPECT_GT(off.totals.kl.different_bits, 0);
  const RlSummary kept = run("mixed-kept", [&](RlJob& j) { mixed(j), j.stack.keep_forward.mode = "all"; });
  EXPECT_EQ(kept.weights_sha256, off.weights_sha256);
  EXPECT_EQ(kept.totals.kl.different_bits, off.totals.kl.different_bits);
  EXPECT_FALSE(metrics("mixed-kept")[0].contains("rows_kept"));
}

TEST_F(KeptForwardJobs, SayWhatCanBeKept) {
  try {
    run("wrong", [](RlJob& j) { j.stack.keep_forward.mode = "some"; });
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("keep_forward is 'some', allowed are off, inputs, all"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace lockstep
