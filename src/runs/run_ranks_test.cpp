// What ranks did and how a run was started is read from its files while they grow, and from files that are no such thing nothing.
#include "runs/run_ranks.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

namespace lockstep {
namespace {

struct RunRanks : testing::Test {
  std::filesystem::path root = std::filesystem::temp_directory_path() / fmt::format("lockstep-run-ranks-{}", getpid());
  RunRanks() { std::filesystem::create_directories(root); }
  ~RunRanks() override { std::filesystem::remove_all(root); }
  void write(const std::string& file, const std::string& text) { std::ofstream(root / file, std::ios::binary) << text; }
};

TEST_F(RunRanks, TheNewestStepAndEachStart) {
  write("metrics.jsonl", R"({"step":1,"ranks_each":[{"rank":0,"computed_seconds":9}]}
{"step":2,"ranks_each":[{"rank":0,"process":0,"host":"a","computed_seconds":0.5,"waited_seconds":0.25,"sent_seconds":0.125,"sent_bytes":7,"more":1},{"rank":1,"process":1,"host":"b"}]}
{"step":3,"ranks_ea)");
  write("launch.jsonl",
        R"({"time":5,"event":"start","start":1,"hosts":[{"name":"a","slots":2},{"name":"b","slots":1}],"processes":3,"ranks":"dp=3","resume":false,"step":0}
{"time":6,"event":"step","step":1,"seconds":0.5,"seconds_since_loss":null}
{"time":9,"event":"loss","words":"process 2 (host b, pid 9) ended without a word","process":2,"host":"b","silent_hosts":[],"step":8,"saved_step":6}
{"time":9,"event":"start","start":2,"hosts":[{"name":"a","slots":2}],"processes":2,"ranks":"dp=2","resume":true,"step":6}
{"time":12,"event":"take_back","hosts":["b"],"step":9}
{"time":12,"event":"start","start":3,"hosts":[],"processes":3,"ranks":"dp=3","resume":true,"step":9}
{"time":20,"event":"end","status":0,"stopped":false}
)");
  const Json told = run_ranks(root);
  EXPECT_EQ(told["step"], 2);
  ASSERT_EQ(told["ranks"].size(), 2u);
  EXPECT_EQ(told["ranks"][0].dump(), R"({"rank":0,"process":0,"host":"a","computed_seconds":0.5,"waited_seconds":0.25,"sent_seconds":0.125,"sent_bytes":7})");
  EXPECT_TRUE(told["ranks"][1]["sent_bytes"].is_null());
  ASSERT_EQ(told["starts"].size(), 3u);
  const Json &first = told["starts"][0], &second = told["starts"][1], &third = told["starts"][2];
  EXPECT_EQ(first["ranks"], "dp=3");
  EXPECT_EQ(first["hosts"][1]["name"], "b");
  EXPECT_EQ(first["seconds"], 0.5);
  EXPECT_EQ(first["loss"]["host"], "b");
  EXPECT_EQ(first["loss"]["saved_step"], 6);
  EXPECT_TRUE(first["end"].is_null());
  EXPECT_EQ(second["step"], 6);
  EXPECT_EQ(second["taken_back"], Json::array({"b"}));
  EXPECT_TRUE(second["seconds"].is_null());
  EXPECT_EQ(third["end"], "finished");
}

TEST_F(RunRanks, OtherFilesAreNothing) {
  const std::string nothing = R"({"step":null,"ranks":[],"starts":[]})";
  EXPECT_EQ(run_ranks(root).dump(), nothing);
  write("metrics.jsonl", "no json\n");
  write("launch.jsonl", "[1]\n{\"event\":7}\n{\"event\":\"loss\",\"words\":\"before any start\"}\n");
  EXPECT_EQ(run_ranks(root).dump(), nothing);
  write("metrics.jsonl", "{\"step\":4,\"ranks_each\":{\"rank\":0}}\n");
  EXPECT_EQ(run_ranks(root).dump(), R"({"step":4,"ranks":[],"starts":[]})");
  std::string many;
  for (int i = 0; i < 500; ++i) many += "{\"event\":\"start\",\"start\":" + std::to_string(i) + "}\n";
  write("launch.jsonl", many);
  const Json starts = run_ranks(root)["starts"];
  EXPECT_EQ(starts.size(), 100u);
  EXPECT_EQ(starts.back()["start"], 499);
}

}  // namespace
}  // namespace lockstep
