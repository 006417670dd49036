#include "launch/run_progress.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/file.h"

namespace lockstep {
namespace {
namespace fs = std::filesystem;

class RunProgressTest : public testing::Test {
 protected:
  void SetUp() override {
    fs::remove_all(folder_);
    fs::create_directories(folder_ / "checkpoints");
  }
  void TearDown() override { fs::remove_all(folder_); }
  void metrics(int from, int to, std::ios::openmode mode = std::ios::app) const {
    std::ofstream file(folder_ / "metrics.jsonl", mode);
    for (int step = from; step <= to; ++step) file << "{\"step\":" << step << ",\"loss\":0.5}\n";
  }
  void checkpoint(const char* name) const { write_file_atomic(folder_ / "checkpoints/latest", std::string(name) + "\n"); }

  fs::path folder_ = fs::path(testing::TempDir()) / "lockstep-run-progress";
};

TEST_F(RunProgressTest, AFolderThatIsNotThereHasNoStep) {
  RunProgress progress(folder_ / "nowhere");
  EXPECT_FALSE(progress.begun());
  progress.begin();
  EXPECT_FALSE(progress.look());
  EXPECT_EQ(progress.step(), 0);
  EXPECT_EQ(progress.saved(), 0);
}

TEST_F(RunProgressTest, StepsAndCheckpointsAreSeenAsTheyCome) {
  RunProgress progress(folder_);
  write_file_atomic(folder_ / "config.json", "{}");
  EXPECT_TRUE(progress.begun());
  progress.begin();
  metrics(1, 3);
  EXPECT_TRUE(progress.look());
  EXPECT_EQ(progress.step(), 3);
  std::ofstream(folder_ / "metrics.jsonl", std::ios::app) << "{\"step\":4,\"lo";
  EXPECT_TRUE(progress.look());
  EXPECT_EQ(progress.step(), 3) << "a line that is being written is none";
  checkpoint("step-000003");
  progress.look();
  EXPECT_EQ(progress.saved(), 3);
}

// Killed at step 7 with a checkpoint of step 5: lines 6 and 7 are not the next start's.
TEST_F(RunProgressTest, WhatAStartDropsIsNotItsOwn) {
  metrics(1, 7);
  checkpoint("step-000005");
  RunProgress progress(folder_);
  progress.begin();
  EXPECT_FALSE(progress.look());
  EXPECT_EQ(progress.step(), 5);
  metrics(1, 5, std::ios::trunc);  // as the start does
  EXPECT_FALSE(progress.look());
  metrics(6, 6);
  EXPECT_TRUE(progress.look());
  EXPECT_EQ(progress.step(), 6);
}

}  // namespace
}  // namespace lockstep
