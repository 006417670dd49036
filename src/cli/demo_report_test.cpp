#include "cli/demo_report.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"

namespace lockstep {
namespace {
namespace fs = std::filesystem;

ArmResult made_up(const DemoArm& arm) {
  ArmResult r;
  r.arm = arm;
  r.profile = "cpu-bf16w";
  r.start.samples = r.end.samples = 8;
  r.start.pass_at_1 = {0.32, 0.31, 0.33};
  r.end.pass_at_1 = {0.42, 0.41, 0.43};
  r.kl.add(-1.0f, -1.0f, 0.2, 0.28);
  r.weights_sha256 = "hash of " + arm.name;
  return r;
}

// What others read: these keys stay.
TEST(DemoReport, TheShapeOfItsJsonStays) {
  std::vector<ArmResult> results;
  for (const DemoArm& arm : demo_arms()) results.push_back(made_up(arm));
  ASSERT_GE(results.size(), 2u);
  const auto json = demo_json(DemoSettings{}, results, Published{"settings", "published hash"});
  EXPECT_EQ(json["arms"][0]["name"], "lockstep");
  EXPECT_EQ(json["arms"][1]["name"], "split");
  for (const auto& arm : json["arms"]) {
    for (const char* key : {"k1", "k2", "k3"}) EXPECT_EQ(arm["kl"][key], 0.0);
    for (const char* key : {"clipped", "different_bits", "seconds"}) EXPECT_TRUE(arm[key].is_number()) << key;
    for (const char* key : {"pass_at_1", "greedy", "pass_at_8"}) {
      EXPECT_TRUE(arm[key]["start"].is_number()) << key;
      EXPECT_TRUE(arm[key]["end"].is_number()) << key;
    }
  }
  EXPECT_EQ(json["arms"][0]["pass_at_1"]["end"], 0.42);
  EXPECT_EQ(json["weights_sha256"], "hash of lockstep");
  EXPECT_EQ(json["published_sha256"], "published hash");
  EXPECT_TRUE(demo_json(DemoSettings{}, results, std::nullopt)["published_sha256"].is_null());
}

TEST(DemoReport, TheTableHasAColumnAnArm) {
  std::vector<ArmResult> results;
  for (const DemoArm& arm : demo_arms()) results.push_back(made_up(arm));
  const std::string table = demo_table(results);
  for (const char* text : {"lockstep", "split", "KL k3", "pass@8 end", "0.420 [0.410, 0.430]"}) EXPECT_NE(table.find(text), std::string::npos) << text;
}

TEST(DemoReport, WhatIsPublishedIsRead) {
  const fs::path folder = fs::temp_directory_path() / ("lockstep_published_" + std::to_string(getpid()));
  fs::create_directories(folder);
  EXPECT_FALSE(read_published(folder, "demo"));
  write_file_atomic(folder / "published.json", R"({"demo": {"settings": "s", "weights_sha256": "w"}, "demo_quick": "w"})");
  EXPECT_EQ(read_published(folder, "demo")->weights_sha256, "w");
  EXPECT_EQ(read_published(folder, "demo")->settings, "s");
  EXPECT_FALSE(read_published(folder, "other"));
  EXPECT_THROW(read_published(folder, "demo_quick"), Error);
  write_file_atomic(folder / "published.json", "{");
  EXPECT_THROW(read_published(folder, "demo"), Error);
  fs::remove_all(folder);
}

TEST(DemoReport, SettingsNameEverythingThatDecidesTheHash) {
  const std::string text = demo_settings_text({});
  DemoSettings other;
  other.rl.learning_rate *= 2;
  EXPECT_NE(demo_settings_text(other), text);
  other = {};
  other.rl.steps = 5;
  EXPECT_NE(demo_settings_text(other), text);
  other = {};
  other.runtime.profile = "cpu-f32";
  EXPECT_NE(demo_settings_text(other), text);
  other = {};
  other.micro_batch = 3;
  other.runtime.threads = 7;
  EXPECT_EQ(demo_settings_text(other), text);
}

}  // namespace
}  // namespace lockstep
