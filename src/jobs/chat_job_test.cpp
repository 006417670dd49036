// Rollouts that are conversations, with a real engine and trainer: models/agent-glm calls its tool in GLM's markup, is shown results, and every token that it
// wrote, the one that ends a call too, has the trainer's bits; nothing that it was shown is trained.
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "base/error.h"
#include "jobs/job_test_tools.h"
#include "jobs/rl_job.h"

namespace lockstep {
namespace {
namespace fs = std::filesystem;

TEST(ChatJobs, RolloutsAreConversationsOfWhichWhatWasWrittenIsTrained) {
  const fs::path root = fs::path(testing::TempDir()) / ("lockstep_chat_jobs_" + std::to_string(::getpid()));
  fs::create_directories(root);
  RlJob job;
  settings_of_run(job.run, job.stack.runtime, root, "talks");
  job.stack.runtime.model = (fs::path(LOCKSTEP_SOURCE_DIR) / "models/agent-glm").string();
  job.rl.environment = "lockbox";
  job.rl.chat = true;
  job.rl.steps = 1;
  job.rl.problems = 1;
  job.rl.rollouts = job.transcripts = 32;  // which guess the first of four keys
  job.rl.max_tokens = 40;
  job.rl.warmup = 0;
  job.rl.loss_config = {"entropy_coefficient=0.05"};  // a signal without rewards
  const RlSummary told = run_rl(job);
  EXPECT_EQ(told.totals.kl.different_bits, 0);
  EXPECT_GT(told.totals.kl.tokens, 0);
  EXPECT_GT(metrics_of(root / "talks").at(0).at("turns").get<double>(), 1.0) << "no call had a result, and this shows little";
  std::ifstream in(root / "talks" / "transcripts.jsonl");
  int calls = 0, results = 0;
  for (std::string line; std::getline(in, line);) {
    const auto rollout = nlohmann::json::parse(line);
    const auto &pieces = rollout.at("tokens"), &weights = rollout.at("weights");
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      calls += pieces[i] == "<|observation|>" && weights[i] != 0;
      if (pieces[i] != "<tool_response>" || weights[i] != 0) continue;
      ++results;
      EXPECT_NE(weights.at(i - 2), 0) << "the token that ends the call is not the policy's: " << line;  // between them stands a line's end
    }
  }
  EXPECT_GT(calls, 0);
  EXPECT_GT(results, 0);

  job.rl.compact_at = 80;
  EXPECT_THROW(run_rl(job), Error);
  fs::remove_all(root);
}

}  // namespace
}  // namespace lockstep
