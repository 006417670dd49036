#include "cli/shipped.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

namespace lockstep {
namespace {
namespace fs = std::filesystem;

// The test program stands in build/ of the checkout, as the program does.
struct Shipped : testing::Test {
  fs::path before = fs::current_path(), empty = fs::temp_directory_path() / ("lockstep_shipped_" + std::to_string(getpid()));
  void SetUp() override {
    fs::create_directories(empty);
    fs::current_path(empty);
  }
  void TearDown() override {
    fs::current_path(before);
    fs::remove_all(empty);
  }
};

TEST_F(Shipped, ModelsAndRecipesAreFoundByNameFromAnyFolder) {
  for (const char* given : {"countdown-glm", "models/countdown-glm", "countdown-glm/"})
    EXPECT_TRUE(fs::exists(fs::path(shipped("models", given)) / "config.json")) << given;
  for (const char* given : {"countdown_rl.toml", "recipes/countdown_rl.toml"}) EXPECT_TRUE(fs::is_regular_file(shipped("recipes", given))) << given;
}

TEST_F(Shipped, WhatIsHereWins) {
  fs::create_directories("countdown-glm");
  EXPECT_EQ(shipped("models", "countdown-glm"), "countdown-glm");
  EXPECT_NE(shipped("models", "models/countdown-glm"), "models/countdown-glm");  // that one is not here
}

TEST_F(Shipped, OtherNamesStayAsTheyAre) {
  for (const char* given :
       {"", "no-such-model", "models/../models/countdown-glm", "../countdown-glm", ".", "/countdown-glm", "recipes/countdown-glm", "a/countdown-glm"})
    EXPECT_EQ(shipped("models", given), given);
}

}  // namespace
}  // namespace lockstep
