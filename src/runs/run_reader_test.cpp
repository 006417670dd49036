#include "runs/run_reader.h"

#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <set>

#include "base/error.h"
#include "runs/run_file.h"
#include "runs/run_report.h"

namespace lockstep {
namespace {
namespace fs = std::filesystem;

struct RunReaderTest : testing::Test {
  fs::path root = fs::temp_directory_path() / fmt::format("lockstep-run-reader-{}", getpid());
  void SetUp() override {
    fs::remove_all(root);
    fs::create_directories(root);
  }
  void TearDown() override { fs::remove_all(root); }
  void write(const std::string& file, const std::string& text, bool append = false) {
    fs::create_directories((root / file).parent_path());
    std::ofstream(root / file, append ? std::ios::app | std::ios::binary : std::ios::binary) << text;
  }
  static std::string line(std::int64_t step, double reward) { return fmt::format("{{\"step\":{},\"reward\":{},\"text\":\"x\"}}\n", step, reward); }
  RunReader reader() { return RunReader({.roots = {root}}); }
  Json metrics(std::int64_t from = 0, const std::string& file = "", std::int64_t points = 2000) {
    return reader().metrics("a", "", {.from = from, .file = file, .points = points});
  }
  static ErrorCode code_of(const std::function<void()>& work) {
    try {
      work();
    } catch (const Error& e) {
      return e.code();
    }
    return ErrorCode::internal;
  }
};

TEST_F(RunReaderTest, ListsRunsAndNothingElse) {
  write("a/metrics.jsonl", line(1, 0.5) + line(2, 0.75));
  write("a/config.json", R"({"steps": "150"})");
  write("demo/metrics-lockstep.jsonl", line(7, 1));
  write("demo/metrics-split.jsonl", line(5, 1));
  write("begun/config.json", "{");
  write("other/readme.txt", "no run");
  write("-bad/metrics-..jsonl", line(1, 1));
  write(".hidden/metrics.jsonl", line(1, 1));
  write("file", "no folder");
  Json runs = reader().list()["runs"];
  std::map<std::string, Json> by_name;
  for (const Json& run : runs) by_name[run["name"]] = run;
  ASSERT_EQ(by_name.size(), 3u) << runs.dump(1);
  EXPECT_EQ(by_name["a"]["last"]["reward"], 0.75);
  EXPECT_EQ(by_name["a"]["steps"], 150);
  EXPECT_EQ(by_name["a"]["arms"][0]["name"], "");
  EXPECT_EQ(by_name["demo"]["arms"].size(), 2u);
  EXPECT_EQ(by_name["demo"]["last"]["step"], 7);
  EXPECT_TRUE(by_name["begun"]["arms"].empty());
  EXPECT_FALSE(by_name["a"]["live"]);
}

TEST_F(RunReaderTest, OnlyWholeLinesCountAndOnlyNewOnesAreSent) {
  write("a/metrics.jsonl", line(1, 0.5) + "{\"step\":2,\"rew");
  const Json first = metrics();
  EXPECT_EQ(first["lines"], 1);
  EXPECT_EQ(first["columns"]["reward"]["x"], Json::array({1.0}));
  EXPECT_FALSE(first["columns"].contains("text"));
  const std::int64_t next = first["next"];
  EXPECT_EQ(metrics(next, first["file"])["lines"], 0);
  write("a/metrics.jsonl", "ard\":0.25}\n", true);
  const Json second = metrics(next, first["file"]);
  EXPECT_EQ(second["from"], next);
  EXPECT_EQ(second["columns"]["reward"], Json::parse(R"({"x":[2.0],"y":[0.25]})"));
}

TEST_F(RunReaderTest, AResumedRunIsReadAnew) {
  write("a/metrics.jsonl", line(1, 0.5) + line(2, 0.5) + line(3, 0.5));
  const Json before = metrics();
  write("new", line(1, 0.5) + line(2, 0.5) + line(3, 0.25) + line(4, 0.25));  // as MetricsLog::resume: another file takes its place
  fs::rename(root / "new", root / "a/metrics.jsonl");
  const Json after = metrics(before["next"], before["file"]);
  EXPECT_EQ(after["from"], 0);
  EXPECT_EQ(after["lines"], 4);
  EXPECT_NE(after["file"], before["file"]);
}

TEST_F(RunReaderTest, LinesThatAreNone) {
  write("a/metrics.jsonl", "\n[1]\n{\"step\":1.5}\nnull\n{\"a\":1}\n" + std::string(5000, '[') +
                               "\n{\"step\":3,\"loss\":null,\"on\":true,\"deep\":{\"x\":1},\"bad\xff\":1}\n" + line(4, 2));
  const Json json = metrics();
  EXPECT_EQ(json["lines"], 8);
  EXPECT_EQ(json["bad_lines"], 7);  // the one with a byte that is no UTF-8 too
  EXPECT_EQ(json["columns"]["reward"]["y"], Json::array({2.0}));
  write("a/metrics.jsonl", "{\"step\":3,\"loss\":null,\"on\":true,\"deep\":{\"x\":1}}\n");
  EXPECT_EQ(metrics()["columns"], Json::parse(R"({"loss":{"x":[3.0],"y":[null]},"on":{"x":[3.0],"y":[1.0]}})"));
}

// A folder that somebody else named: what the listing says opens.
TEST_F(RunReaderTest, FoldersOfAnyNameAreRuns) {
  const std::vector<std::string> names = {"with space", "50% done",           "a#b?c&d", "\u00fcn\u00efc\u00f6de \u8bad\u7ec3", "-dash",
                                          "quote\"'",   std::string(200, 'n')};
  for (const std::string& name : names) write(name + "/metrics.jsonl", line(1, 0.5));
  write("\xff/metrics.jsonl", line(1, 0.25));
  std::set<std::string> listed;
  const Json list = reader().list();
  for (const Json& run : list["runs"]) {
    listed.insert(run["name"]);
    EXPECT_EQ(reader().metrics(run["name"], "", {})["lines"], 1);
  }
  EXPECT_EQ(listed.size(), names.size() + 1);
  for (const std::string& name : names) EXPECT_TRUE(listed.contains(name)) << name;
  EXPECT_TRUE(listed.contains("\ufffd"));
}

TEST_F(RunReaderTest, WhatIsNoNumberIsAGap) {
  write("a/metrics.jsonl", line(1, 1) + "{\"step\":2,\"reward\":NaN,\"NaN \\\"Infinity\":3}\n{\"step\":3,\"reward\":-Infinity}\n" + line(4, 2));
  const Json json = metrics();
  EXPECT_EQ(json["bad_lines"], 0);
  EXPECT_EQ(json["columns"]["reward"], Json::parse(R"({"x":[1.0,2.0,3.0,4.0],"y":[1.0,null,null,2.0]})"));
  EXPECT_EQ(json["columns"]["NaN \"Infinity"]["y"][0], 3);
  // Thinned, a long gap is still one.
  std::string text;
  for (int i = 1; i <= 40000; ++i) text += i > 10000 && i <= 20000 ? fmt::format("{{\"step\":{},\"reward\":null}}\n", i) : line(i, 1);
  write("a/metrics.jsonl", text);
  const Json column = metrics()["columns"]["reward"];
  int inside = 0;
  for (std::size_t i = 0; i < column["x"].size(); ++i)
    if (column["x"][i] > 10100 && column["x"][i] < 19900) {
      EXPECT_TRUE(column["y"][i].is_null());
      ++inside;
    }
  EXPECT_GT(inside, 100);
}

TEST_F(RunReaderTest, ManyLinesAreThinnedAndSpikesStay) {
  std::string text;
  for (int i = 1; i <= 100000; ++i) text += line(i, i == 70001 ? 99 : i == 70002 ? -99 : i % 10);
  write("a/metrics.jsonl", text);
  const auto begin = std::chrono::steady_clock::now();
  const Json json = metrics();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  RecordProperty("seconds", fmt::format("{}", seconds));
  EXPECT_TRUE(json["thinned"]);
  EXPECT_EQ(json["lines"], 100000);
  const std::vector<double> x = json["columns"]["reward"]["x"], y = json["columns"]["reward"]["y"];
  EXPECT_LE(x.size(), 2000u);
  EXPECT_GE(x.size(), 1900u);
  EXPECT_TRUE(std::is_sorted(x.begin(), x.end()));
  EXPECT_EQ(*std::max_element(y.begin(), y.end()), 99);
  EXPECT_EQ(*std::min_element(y.begin(), y.end()), -99);
  EXPECT_EQ(metrics(json["next"], json["file"])["lines"], 0);
  EXPECT_LT(seconds, 20);  // no measure of speed: nothing here is quadratic
}

TEST_F(RunReaderTest, AFileOfGigabytesIsReadInParts) {
  write("a/metrics.jsonl", line(1, 1));
  // Mostly a hole: 2 GB of zeros without a line's end, then a line.
  fs::resize_file(root / "a/metrics.jsonl", std::uintmax_t{2} << 30);
  write("a/metrics.jsonl", "\n" + line(2, 2), true);
  const Json json = metrics();
  EXPECT_TRUE(json["thinned"]);
  EXPECT_EQ(json["next"], static_cast<std::int64_t>(fs::file_size(root / "a/metrics.jsonl")));
}

TEST_F(RunReaderTest, ColumnsAndPointsAreLimited) {
  std::string text = "{\"step\":1";
  for (int i = 0; i < 1000; ++i) text += fmt::format(",\"key{}\":{}", i, i);
  write("a/metrics.jsonl", text + "}\n");
  EXPECT_EQ(metrics()["columns"].size(), RunReader::kMostColumns);
  EXPECT_EQ(code_of([&] { metrics(-1); }), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([&] { metrics(0, "", 9); }), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([&] { metrics(0, "", RunReader::kMostPoints + 1); }), ErrorCode::invalid_argument);
}

TEST_F(RunReaderTest, NamesAreNoPaths) {
  write("a/metrics.jsonl", line(1, 1));
  write("secret/metrics.jsonl", line(1, 1));
  fs::create_directories(root / "inner/b");
  write("inner/b/metrics.jsonl", line(1, 1));
  const RunReader inner({.roots = {root / "inner"}});
  EXPECT_NO_THROW(inner.about("b"));
  const std::vector<std::string> names = {"../secret", "..", ".", "", "/", "b/", "b/../../secret", "../inner/b", std::string("b\0", 2), "b\\..", "%2e%2e"};
  for (const std::string& name : names) EXPECT_EQ(code_of([&] { inner.about(name); }), ErrorCode::not_found) << name;
  for (const std::string arm : {"../../a/metrics", "/../../../a/metrics", "x", ".."}) {
    EXPECT_EQ(code_of([&] { inner.metrics("b", arm, {}); }), ErrorCode::not_found) << arm;
    EXPECT_EQ(code_of([&] { inner.transcripts("b", arm, 1); }), ErrorCode::not_found) << arm;
  }
}

TEST_F(RunReaderTest, WhatIsNoFileIsNoFile) {
  write("a/config.json", "{}");
  ASSERT_EQ(mkfifo((root / "a/metrics.jsonl").c_str(), 0600), 0);
  fs::create_directories(root / "a/transcripts.jsonl");
  EXPECT_NO_THROW(reader().list());  // and it does not wait for somebody to write
  EXPECT_EQ(code_of([&] { metrics(); }), ErrorCode::not_found);
  EXPECT_TRUE(reader().transcript_steps("a", "")["steps"].empty());
  fs::remove_all(root / "a");
  EXPECT_EQ(code_of([&] { metrics(); }), ErrorCode::not_found);
  EXPECT_TRUE(RunReader({.roots = {root / "nowhere"}, .runs = {root / "gone"}}).list()["runs"].empty());
}

TEST_F(RunReaderTest, AboutTakesWhatIsJson) {
  write("a/config.json", R"({"seed":"1"})");
  write("a/parity.json", "{\"passed\":tr");
  write("other.json", R"({"passed":true})");
  EXPECT_EQ(reader().about("a")["config"]["seed"], "1");
  EXPECT_TRUE(reader().about("a")["parity"].is_null());
  const RunReader given({.roots = {root}, .parity = root / "other.json"});
  EXPECT_EQ(given.about("a")["parity"]["passed"], true);
  write("a/result.json", std::string(100, '[') + std::string(100, ']'));
  EXPECT_TRUE(reader().about("a")["result"].is_null());
  write("a/result.json", "{\"a\":" + std::string(100000, '[') + std::string(100000, ']') + "}");
  EXPECT_TRUE(reader().about("a")["result"].is_null());
}

TEST_F(RunReaderTest, TranscriptsOfBothHalves) {
  write("a/metrics.jsonl", line(1, 1));
  write("a/transcripts.1.jsonl", "{\"step\":1,\"tokens\":[\"a\"]}\n{\"step\":2}\n");
  write("a/transcripts.jsonl", "{\"step\":2,\"tokens\":[\"b\"]}\n{\"tokens\": [], \"step\": 12}\nnonsense\n{\"step\":2,\n{\"step\":3,\"cut");
  EXPECT_EQ(reader().transcript_steps("a", "")["steps"], Json::array({1, 2, 12}));
  const Json two = reader().transcripts("a", "", 2)["entries"];
  ASSERT_EQ(two.size(), 2u);
  EXPECT_EQ(two[1]["tokens"][0], "b");
  EXPECT_TRUE(reader().transcripts("a", "", 3)["entries"].empty());
  write("a/transcripts.jsonl", "{\"step\":4,\"tokens\":" + std::string(200'000, '[') + std::string(200'000, ']') + "}\n{\"step\":4,\"tokens\":[]}\n");
  EXPECT_EQ(reader().transcripts("a", "", 4)["entries"].size(), 1u);  // what nests as deep would end the process when it is written
}

TEST_F(RunReaderTest, ARunIsLiveWhileItsLockIsHeld) {
  write("a/metrics.jsonl", line(1, 1));
  write("a/lock", "");
  EXPECT_FALSE(reader().list()["runs"][0]["live"]);
  const int descriptor = open((root / "a/lock").c_str(), O_RDWR);
  ASSERT_EQ(flock(descriptor, LOCK_EX), 0);
  EXPECT_TRUE(reader().list()["runs"][0]["live"]);
  close(descriptor);
  EXPECT_FALSE(reader().list()["runs"][0]["live"]);
  EXPECT_TRUE(RunReader({.roots = {root}, .live = "a"}).list()["runs"][0]["live"]);
}

TEST_F(RunReaderTest, TheReportStandsAlone) {
  write("a/metrics.jsonl", line(1, 0.5));
  write("a/config.json", R"({"note":"</script><script>alert(1)</script><!--"})");
  write("a/transcripts.jsonl", "{\"step\":1,\"tokens\":[\"</script>\"]}\n");
  write_run_report(root / "a", root / "a/report.html");
  const std::string html = run_report(root / "a");
  EXPECT_EQ(fs::file_size(root / "a/report.html"), html.size());
  const auto count = [&](std::string_view word) {
    std::size_t n = 0;
    for (std::size_t at = html.find(word); at != std::string::npos; at = html.find(word, at + 1)) ++n;
    return n;
  };
  EXPECT_EQ(count("</script>"), 2u);  // the data's and the program's
  EXPECT_EQ(count("<!--"), 0u);
  EXPECT_EQ(count("src=\"assets"), 0u);
  EXPECT_EQ(count("script-src 'sha256-"), 1u);
  EXPECT_EQ(html.find(root.string()), std::string::npos);  // no path of this machine
  EXPECT_EQ(code_of([&] { run_report(root); }), ErrorCode::not_found);
}

}  // namespace
}  // namespace lockstep
