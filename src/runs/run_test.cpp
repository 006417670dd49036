#include "runs/run.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/error.h"
#include "base/file.h"

namespace lockstep {
namespace {
namespace fs = std::filesystem;
using TrainingRun = lockstep::Run;  // within a test Run is gtest's

// Counts to `last`; its checkpoints are files with the count.
class Counting final : public RunWork {
 public:
  explicit Counting(std::int64_t last, std::int64_t from = 0) : last_(last), step_(from) {}
  std::int64_t step() const override { return step_; }
  bool finished() const override { return step_ >= last_; }
  RunStep take_step() override {
    if (step_ + 1 == cancelled_at) {
      if (stopping) stopping->stop();
      fail(ErrorCode::cancelled, "stopped");
    }
    if (step_ + 1 == failing_at) fail(ErrorCode::numeric, "the loss is nan");
    ++step_;
    return {.metrics = {{"step", step_}}, .transcripts = {{{"step", step_}}}, .tokens = 1, .save = step_ == saved_out_of_turn};
  }
  void save(const RunDirectory& run, std::int64_t) override {
    write_file_atomic(run.checkpoints() / fmt::format("{}", step_), "");
    saved.push_back(step_);
  }
  StopSource* stopping = nullptr;  // in the middle of the step that is cancelled
  std::int64_t cancelled_at = -1, failing_at = -1, saved_out_of_turn = -1;
  std::vector<std::int64_t> saved;

 private:
  std::int64_t last_, step_;
};

class RunTest : public testing::Test {
 protected:
  RunTest() { fs::remove_all(root_); }
  ~RunTest() override { fs::remove_all(root_); }
  RunSettings settings() {
    RunSettings s;
    s.runs = root_.string();
    s.name = "a";
    s.quiet = true;
    return s;
  }
  std::size_t lines(const std::string& file) {
    std::ifstream in(root_ / file);
    std::size_t count = 0;
    for (std::string line; std::getline(in, line);) ++count;
    return count;
  }
  fs::path root_ = fs::path(testing::TempDir()) / fmt::format("run_test_{}", testing::UnitTest::GetInstance()->current_test_info()->name());
};

TEST_F(RunTest, SavesInTurnOutOfTurnAndAtTheEnd) {
  RunSettings s = settings();
  s.checkpoint_every = 3;
  Counting work(8);
  work.saved_out_of_turn = 4;
  EXPECT_TRUE(TrainingRun(s).go(work, {.label = "count", .steps = 8}));
  EXPECT_EQ(work.saved, (std::vector<std::int64_t>{3, 4, 6, 8}));
  EXPECT_EQ(lines("a/metrics.jsonl"), 8u);
  EXPECT_EQ(lines("a/transcripts.jsonl"), 8u);
}

TEST_F(RunTest, AStoppedOneIsSavedAndGoesOn) {
  StopSource source;
  RunSettings s = settings();
  s.stop = source.token();
  s.on_step = [&](std::int64_t step) {
    if (step == 3) source.stop();
  };
  Counting work(8);
  EXPECT_FALSE(TrainingRun(s).go(work, {.label = "count", .steps = 8}));
  EXPECT_EQ(work.step(), 3);
  EXPECT_EQ(work.saved, (std::vector<std::int64_t>{3}));
  EXPECT_THROW(TrainingRun again(s), Error);  // it exists
  s.resume = true;
  s.stop = {};
  Counting rest(8, 2);  // an older checkpoint: what was logged after it goes
  {
    TrainingRun run(s);
    EXPECT_TRUE(run.directory().resumed());
    EXPECT_TRUE(run.go(rest, {.label = "count", .steps = 8}));
  }
  EXPECT_EQ(lines("a/metrics.jsonl"), 8u);
  EXPECT_EQ(rest.saved, (std::vector<std::int64_t>{8}));
  Counting nothing(8, 8);
  TrainingRun(s).go(nothing, {.label = "count", .steps = 8});
  EXPECT_TRUE(nothing.saved.empty());
}

// One is stopped, another that runs in the same process is not.
TEST_F(RunTest, ATokenStopsItsOwnRunAlone) {
  StopSource first, second;
  first.stop();
  RunSettings a = settings(), b = settings();
  a.stop = first.token();
  b.name = "b";
  b.stop = second.token();
  Counting stopped(5), whole(5);
  EXPECT_FALSE(TrainingRun(a).go(stopped, {.label = "a", .steps = 5}));
  EXPECT_TRUE(TrainingRun(b).go(whole, {.label = "b", .steps = 5}));
  EXPECT_EQ(stopped.step(), 0);
  EXPECT_EQ(whole.step(), 5);
}

TEST_F(RunTest, AStepThatWasCancelledWasNotTaken) {
  StopSource source;
  RunSettings s = settings();
  s.stop = source.token();
  Counting work(8);
  work.stopping = &source;
  work.cancelled_at = 3;
  EXPECT_FALSE(TrainingRun(s).go(work, {.label = "count", .steps = 8}));
  EXPECT_EQ(work.saved, (std::vector<std::int64_t>{2}));
  // Nobody stopped these: what they throw is told.
  s.name = "c";
  s.stop = {};
  for (const bool cancelled : {true, false}) {
    Counting other(8);
    (cancelled ? other.cancelled_at : other.failing_at) = 4;
    s.resume = !cancelled;
    TrainingRun run(s);
    EXPECT_THROW(run.go(other, {.label = "count", .steps = 8}), Error);
    EXPECT_TRUE(other.saved.empty());
  }
}

TEST_F(RunTest, BesideOthersItSavesNothing) {
  fs::create_directories(root_);
  Counting work(4);
  TrainingRun run(settings(), root_);
  EXPECT_FALSE(run.saves());
  EXPECT_TRUE(run.go(work, {.label = "count", .steps = 4}));
  EXPECT_TRUE(work.saved.empty());
  EXPECT_EQ(lines("metrics-a.jsonl"), 4u);
  EXPECT_EQ(lines("transcripts-a.jsonl"), 4u);
}

}  // namespace
}  // namespace lockstep
