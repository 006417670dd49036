#include "checkpoint/run_directory.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "checkpoint/safetensors_test_tools.h"

namespace lockstep {
namespace {
namespace fs = std::filesystem;

class RunDirectoryTest : public testing::Test {
 protected:
  RunDirectory open(const std::string& name, bool resume = false) {
    return RunDirectory::open(folder_.path() / "runs", name, {{"steps", 3}}, {resume, "lockstep train rl --config c.toml --resume"});
  }
  TemporaryFolder folder_;
};

TEST_F(RunDirectoryTest, CreatesAndRefusesAndResumes) {
  {
    const RunDirectory run = open("a");
    EXPECT_FALSE(run.resumed());
    EXPECT_EQ(run.config(), (Json{{"steps", 3}}));
    EXPECT_TRUE(fs::is_directory(run.checkpoints()));
    EXPECT_EQ(run.metrics_file(), folder_.path() / "runs" / "a" / "metrics.jsonl");
    EXPECT_EQ(run.export_folder().filename(), "export");
  }
  expect_error(ErrorCode::already_exists, {"'", "lockstep train rl --config c.toml --resume"}, [&] { open("a"); });
  EXPECT_TRUE(open("a", true).resumed());
  open("countdown");
  expect_error(ErrorCode::not_found, {"did you mean 'countdown'"}, [&] { open("countdwn", true); });
  EXPECT_FALSE(fs::exists(folder_.path() / "runs" / "countdwn"));
  // What a crash between the folder and its config leaves is no run yet.
  fs::remove(folder_.path() / "runs" / "a" / "config.json");
  EXPECT_FALSE(open("a").resumed());
}

TEST_F(RunDirectoryTest, NamesAreChecked) {
  for (const char* name : {"", ".", "..", "a/b", "/a", "-a", "a b", "ä", "a\nb"})
    expect_error(ErrorCode::invalid_argument, {"name", "allowed"}, [&] { open(name); });
  expect_error(ErrorCode::invalid_argument, {"100"}, [&] { open(std::string(101, 'a')); });
  open("A1._-z");
}

TEST_F(RunDirectoryTest, OneProcessAtATime) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    const RunDirectory run = open("a");
    if (write(ready[1], "x", 1) == 1) pause();
    _exit(0);
  }
  char byte;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  expect_error(ErrorCode::resource_exhausted, {"in use", std::to_string(child)}, [&] { open("a", true); });
  const RunDirectory other = open("b");
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_TRUE(open("a", true).resumed());  // the lock died with its process
  expect_error(ErrorCode::resource_exhausted, {"in use"}, [&] { open("b", true); });
  close(ready[0]);
  close(ready[1]);
}

}  // namespace
}  // namespace lockstep
