// The demo ends with an error where its attention reads keys that were not selected, or experts compute rows that were not theirs: its "key pairs
// skipped" is not a formula.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "base/error.h"
#include "jobs/demo_arm.h"
#include "system/planted_work.h"

namespace lockstep {
namespace {

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

TEST(DemoEngagement, TheDemoAsItIsDoesWhatItSays) {
  const DemoSettings settings = short_demo();
  const ArmResult right = run_arm(demo_arms()[0], settings, std::nullopt);
  EXPECT_GT(right.work.pairs_skipped(), 0);
  EXPECT_EQ(right.work.fault(), "");
  std::filesystem::remove_all(settings.folder);
}

// Of the demo with a planted kernel.
std::string error_of_demo() {
  const DemoSettings settings = short_demo();
  std::string error;
  try {
    run_arm(demo_arms()[0], settings, std::nullopt);
  } catch (const Error& e) {
    error = e.what();
  }
  std::filesystem::remove_all(settings.folder);
  return error;
}

TEST(DemoEngagement, TheDemoFailsWhereAllKeysAreRead) {
  const PlantedAttention planted(&KernelTable::attention_forward, read_all_keys);
  const std::string error = error_of_demo();
  EXPECT_NE(error.find("attention read"), std::string::npos) << error;
}

TEST(DemoEngagement, TheDemoFailsWhereAllExpertsAreComputed) {
  const PlantedLinear planted(&KernelTable::linear_forward, compute_all_experts);
  const std::string error = error_of_demo();
  EXPECT_NE(error.find("matrices of experts"), std::string::npos) << error;
}

}  // namespace
}  // namespace lockstep
