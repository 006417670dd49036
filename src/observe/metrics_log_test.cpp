#include "observe/metrics_log.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/file.h"

namespace lockstep {
namespace fs = std::filesystem;
namespace {

class MetricsLogTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "lockstep-metrics-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder = name;
    path = folder / "metrics.jsonl";
  }
  void TearDown() override { fs::remove_all(folder); }
  std::string text() const { return read_file(path, 1 << 20); }
  void put(std::string_view content) const { write_file_atomic(path, content); }
  fs::path folder, path;
};

template <class F>
std::string error_of(F&& work, ErrorCode wanted) {
  try {
    work();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), wanted) << e.what();
    return e.message();
  }
  ADD_FAILURE() << "no Error";
  return "";
}

TEST_F(MetricsLogTest, EachEntryIsOneLineAtOnceInItsOwnOrder) {
  MetricsLog log = MetricsLog::create(path);
  log.append({{"step", 1}, {"loss", 0.5}, {"a", "x\ny"}});
  const std::string first = text();
  EXPECT_EQ(first, "{\"step\":1,\"loss\":0.5,\"a\":\"x\\ny\"}\n");
  log.append({{"step", 2}, {"loss", std::numeric_limits<double>::quiet_NaN()}, {"bad", "\xff"}});
  EXPECT_EQ(text().substr(first.size()), "{\"step\":2,\"loss\":null,\"bad\":\"\xef\xbf\xbd\"}\n");
}

TEST_F(MetricsLogTest, ExistingFileIsRefusedByCreate) {
  put("{\"step\":1}\n");
  error_of([&] { MetricsLog::create(path); }, ErrorCode::already_exists);
  EXPECT_EQ(text(), "{\"step\":1}\n");
}

TEST_F(MetricsLogTest, ResumeKeepsWhatTheCheckpointKnows) {
  put("{\"step\":1}\n{\"step\":2,\"loss\":0.10}\n{\"step\":2,\"eval\":1}\n{\"step\":3}\n{\"step\":4,\"lo");
  MetricsLog log = MetricsLog::resume(path, 2);
  log.append({{"step", 3}, {"again", true}});
  EXPECT_EQ(text(), "{\"step\":1}\n{\"step\":2,\"loss\":0.10}\n{\"step\":2,\"eval\":1}\n{\"step\":3,\"again\":true}\n");
}

TEST_F(MetricsLogTest, ResumeDropsAnUnfinishedLastLineAndMakesAMissingFile) {
  put("{\"step\":1}\n{\"step\":2}");
  { MetricsLog log = MetricsLog::resume(path, 10); }
  EXPECT_EQ(text(), "{\"step\":1}\n");
  fs::remove(path);
  MetricsLog log = MetricsLog::resume(path, 10);
  EXPECT_EQ(text(), "");
}

TEST_F(MetricsLogTest, CorruptLineIsNamedAndNothingIsLost) {
  for (const std::string bad : {"nonsense\n{\"step\":3}\n", "\n", "{\"step\":\"2\"}\n"}) {
    put("{\"step\":1}\n" + bad);
    const std::string message = error_of([&] { MetricsLog::resume(path, 5); }, ErrorCode::corrupt_file);
    EXPECT_NE(message.find("line 2"), std::string::npos) << message;
    EXPECT_EQ(text(), "{\"step\":1}\n" + bad);
  }
}

TEST_F(MetricsLogTest, EntryWithoutStepIsRefused) {
  MetricsLog log = MetricsLog::create(path);
  error_of([&] { log.append({{"loss", 1}}); }, ErrorCode::invalid_argument);
  error_of([&] { log.append({{"step", 0.5}}); }, ErrorCode::invalid_argument);
  error_of([&] { log.append(3); }, ErrorCode::invalid_argument);
  EXPECT_EQ(text(), "");
}

// As on a full disk: the process may write no more than 100 bytes to a file.
TEST_F(MetricsLogTest, RefusedWriteIsAnErrorAndLeavesNoHalfLine) {
  const auto write_too_much = [&] {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{100, 100};
    setrlimit(RLIMIT_FSIZE, &limit);
    MetricsLog log = MetricsLog::create(path);
    log.append({{"step", 1}});
    try {
      log.append({{"step", 2}, {"text", std::string(500, 'x')}});
    } catch (const Error& e) {
      _exit(e.code() == ErrorCode::io ? 0 : 1);
    }
    _exit(2);
  };
  EXPECT_EXIT(write_too_much(), testing::ExitedWithCode(0), "");
  EXPECT_EQ(text(), "{\"step\":1}\n");
}

TEST_F(MetricsLogTest, ManyThreads) {
  {
    MetricsLog log = MetricsLog::create(path);
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&, t] {
        for (int i = 0; i < 200; ++i) log.append({{"step", i}, {"thread", t}});
      });
    for (std::thread& thread : threads) thread.join();
  }
  const std::string before = text();
  { MetricsLog log = MetricsLog::resume(path, 1000); }  // reads every line
  EXPECT_EQ(text(), before);
  EXPECT_EQ(std::count(before.begin(), before.end(), '\n'), 800);
}

}  // namespace
}  // namespace lockstep
