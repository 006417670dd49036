// A run that publishes beside its steps has in its channel the exact weights of each step, and loses nothing where an upload fails.
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "jobs/job_test_tools.h"
#include "jobs/rl_job.h"
#include "sync/channel.h"
#include "sync/snapshot.h"

namespace lockstep {
namespace {
namespace fs = std::filesystem;

class RlPublishingBeside : public testing::Test {
 protected:
  ~RlPublishingBeside() override { fs::remove_all(root_); }
  RlJob job(const std::string& name, std::int64_t steps) {
    RlJob job;
    settings_of_run(job.run, job.stack.runtime, root_, name);
    job.rl.steps = steps;
    job.rl.problems = job.rl.rollouts = 4;  // so that rewards differ, and every step moves the weights
    job.rl.warmup = 0;
    job.publish.place = (root_ / ("store-" + name) / "chat").string();
    return job;
  }
  // What the channel's snapshots are, the newest first.
  std::vector<std::string> contents(const std::string& name) {
    const auto store = open_store((root_ / ("store-" + name)).string());
    std::vector<std::string> all;
    for (std::string id = read_channel_record(*store, "chat")->target; !id.empty();) {
      const Snapshot snapshot = load_snapshot(*store, id);
      all.push_back(content_digest(snapshot.manifest));
      id = snapshot.manifest.parent;
    }
    return all;
  }
  std::vector<nlohmann::json> lines(const std::string& name) { return metrics_of(root_ / name); }
  fs::path root_ = fs::path(testing::TempDir()) / fmt::format("lockstep_rl_publishing_{}", ::getpid());
};

TEST_F(RlPublishingBeside, EachSnapshotHasTheWeightsOfItsStep) {
  run_rl(job("whole", 3));
  const std::vector<std::string> all = contents("whole");
  ASSERT_EQ(all.size(), 4);
  for (int i = 0; i < 3; ++i) EXPECT_NE(all[i], all[i + 1]) << "a step changed nothing: nothing is compared";
  for (const std::int64_t steps : {1, 2}) {
    const std::string name = std::to_string(steps);
    StopSource source;
    RlJob part = job(name, 3);
    part.run.stop = source.token();
    part.run.on_step = [&](std::int64_t step) {
      if (step == steps) source.stop();
    };
    EXPECT_FALSE(run_rl(part).finished);
    EXPECT_EQ(contents(name).front(), all[static_cast<std::size_t>(3 - steps)]) << "stopped after " << steps;
  }
  const auto told = lines("whole");
  ASSERT_EQ(told.size(), 3);
  EXPECT_EQ(told[0]["publish_sequence"], 1);  // its own is on the way
  EXPECT_EQ(told[1]["publish_sequence"], 2);
  EXPECT_EQ(told[2]["publish_sequence"], 4);  // the last one waits
  EXPECT_GT(told[1]["publish_bytes"], 0);
  EXPECT_LE(told[1]["publish_seconds"], told[1]["publish_beside_seconds"].get<double>() + 1);
}

TEST_F(RlPublishingBeside, AFailedUploadIsToldAndLosesNothing) {
  run_rl(job("whole", 4));
  RlJob broken = job("broken", 4);
  const fs::path store = root_ / "store-broken";
  broken.run.on_step = [&](std::int64_t step) {
    if (step != 2) return;
    // The second step's upload may be under way: it fails, or the next one does.
    fs::rename(store / "objects", store / "away");
    std::ofstream(store / "objects") << "no folder";
  };
  EXPECT_THROW(run_rl(broken), Error);
  const std::size_t taken = lines("broken").size();
  EXPECT_GE(taken, 3);  // the step beside which it failed counts
  const std::vector<std::string> whole = contents("whole");
  const std::string target = contents("broken").front();
  EXPECT_NE(std::find(whole.begin(), whole.end(), target), whole.end());  // an older snapshot, whole
  fs::remove(store / "objects");
  fs::rename(store / "away", store / "objects");
  broken.run.on_step = {};
  broken.run.resume = true;
  const RlSummary rest = run_rl(broken);
  EXPECT_TRUE(rest.finished);
  EXPECT_EQ(rest.totals.steps, 4 - static_cast<std::int64_t>(taken));  // none is taken twice
  EXPECT_EQ(contents("broken").front(), whole.front());
}

}  // namespace
}  // namespace lockstep
