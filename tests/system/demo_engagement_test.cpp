// The demo ends with an error where its attention reads keys that were not selected: its "key pairs skipped" is not a formula.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "base/error.h"
#include "jobs/demo_arm.h"
#include "kernels/launch.h"
#include "kernels/planted_kernel_test_tools.h"

namespace lockstep {
namespace {

using Attention = PlantedKernel<AttentionForward>;

void read_all_keys(const AttentionForward& op, ThreadPool& pool) {
  AttentionForward dense = op;
  dense.selection = dense.count = View();
  Attention::right(dense, pool);
}

DemoSettings short_demo() {
  DemoSettings settings;
  settings.runtime.model = (std::filesystem::path(LOCKSTEP_SOURCE_DIR) / "models/countdown-glm").string();
  settings.runtime.threads = 2;
  settings.rl.steps = settings.rl.warmup = 1;
  settings.rl.problems = 2;
  settings.rl.rollouts = 2;
  settings.evaluation.problems = 2;
  settings.evaluation.samples = 1;
  settings.folder = std::filesystem::path(testing::TempDir()) / ("lockstep_engagement_" + std::to_string(::getpid()));
  std::filesystem::create_directories(settings.folder);
  return settings;
}

TEST(DemoEngagement, TheDemoFailsWhereAllKeysAreRead) {
  const DemoSettings settings = short_demo();
  const ArmResult right = run_arm(demo_arms()[0], settings, std::nullopt);
  EXPECT_GT(right.work.pairs_skipped(), 0);
  EXPECT_EQ(right.work.fault(), "");
  std::filesystem::remove_all(settings.folder);
  std::filesystem::create_directories(settings.folder);
  const Attention planted(&KernelTable::attention_forward, read_all_keys);
  try {
    run_arm(demo_arms()[0], settings, std::nullopt);
    ADD_FAILURE() << "the demo did not notice";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("attention read"), std::string::npos) << e.what();
  }
  std::filesystem::remove_all(settings.folder);
}

}  // namespace
}  // namespace lockstep
