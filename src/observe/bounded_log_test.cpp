#include "observe/bounded_log.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

namespace lockstep {
namespace {
namespace fs = std::filesystem;

struct BoundedLogTest : testing::Test {
  fs::path folder = fs::temp_directory_path() / ("lockstep-bounded-log-" + std::to_string(::getpid()));
  fs::path path = folder / "transcripts.jsonl";
  void SetUp() override { fs::create_directories(folder); }
  void TearDown() override { fs::remove_all(folder); }

  static std::string text(const fs::path& file) {
    std::ifstream in(file, std::ios::binary);
    std::stringstream all;
    all << in.rdbuf();
    return all.str();
  }
  std::string both() const { return text(BoundedLog::older_half(path)) + "|" + text(path); }
  // Steps first..last, two entries each, as a run that resumed at first - 1 would write them.
  void write(std::int64_t first, std::int64_t last, std::int64_t most_bytes) {
    BoundedLog log = BoundedLog::resume(path, first - 1, most_bytes);
    for (std::int64_t step = first; step <= last; ++step)
      for (int i = 0; i < 2; ++i) log.append({{"step", step}, {"text", std::string(80, 'x')}});
  }
};

TEST_F(BoundedLogTest, StaysWithinItsBytesAndKeepsTheNewest) {
  write(1, 500, 10000);
  const auto bytes = fs::file_size(path) + fs::file_size(BoundedLog::older_half(path));
  EXPECT_LE(bytes, 10000u + 110u);
  EXPECT_GE(bytes, 5000u);
  EXPECT_NE(text(path).find("\"step\":500"), std::string::npos);
  EXPECT_EQ(both().find("\"step\":1,"), std::string::npos);
}

TEST_F(BoundedLogTest, ResumesToWhatAnUndisturbedRunWrites) {
  // With 10,000 bytes the files change within step 25.
  for (const std::int64_t stop : {10, 23, 24, 25, 26, 40}) {
    for (const std::int64_t checkpoint : {5, 20, 24}) {
      if (checkpoint > stop) continue;
      fs::remove_all(folder);
      fs::create_directories(folder);
      write(1, 40, 10000);
      const std::string undisturbed = both();
      fs::remove_all(folder);
      fs::create_directories(folder);
      write(1, stop, 10000);
      std::ofstream(path, std::ios::app) << "{\"step\": 41, \"te";  // the kill
      write(checkpoint + 1, 40, 10000);
      EXPECT_EQ(both(), undisturbed) << "stopped at " << stop << ", resumed from " << checkpoint;
    }
  }
}

TEST_F(BoundedLogTest, AnOlderHalfWithoutItsFileIsTheFile) {
  write(1, 5, 1 << 20);
  const std::string before = text(path);
  fs::rename(path, BoundedLog::older_half(path));  // killed between the rename and the new file
  write(6, 5, 1 << 20);
  EXPECT_EQ(text(path), before);
  EXPECT_FALSE(fs::exists(BoundedLog::older_half(path)));
}

}  // namespace
}  // namespace lockstep
