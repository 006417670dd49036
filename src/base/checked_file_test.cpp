// Blocks come back as they were written; whatever is done to the file is an error that names it.
#include "base/checked_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "base/error.h"

namespace lockstep {
namespace {

struct CheckedFolder {
  std::filesystem::path path = std::filesystem::path(::testing::TempDir()) / ("lockstep-checked-" + std::to_string(getpid()));
  CheckedFolder() { std::filesystem::create_directories(path); }
  ~CheckedFolder() { std::filesystem::remove_all(path); }
};

const std::vector<double> kFirst{1.5, -2.25, 0x1p-96}, kSecond{3.0};

std::string written(const std::filesystem::path& path) {
  CheckedWriter out(path);
  out.values(kFirst);
  out.value(std::int32_t{7});
  out.values(kSecond);
  out.commit();
  return read_file(path, 1 << 20);
}

// What reading says; empty: it came back exactly.
std::string outcome(const std::filesystem::path& path) {
  try {
    CheckedReader in(path);
    if (in.values<double>() != kFirst || in.value<std::int32_t>() != 7 || in.values<double>() != kSecond) return "other values";
    in.finish();
  } catch (const Error& e) {
    return e.code() == ErrorCode::corrupt_file ? e.what() : fmt::format("not corrupt_file: {}", e.what());
  }
  return "";
}

TEST(CheckedFile, FlippedBitsAndCutsAreFound) {
  const CheckedFolder folder;
  const std::filesystem::path path = folder.path / "state";
  const std::string bytes = written(path);
  EXPECT_EQ(outcome(path), "");
  const auto with = [&](const std::string& other) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << other;
    return outcome(path);
  };
  for (std::size_t at = 0; at < bytes.size(); at += 3) {
    std::string flipped = bytes;
    flipped[at] = static_cast<char>(flipped[at] ^ (1 << at % 8));
    EXPECT_NE(with(flipped).find("'" + path.string() + "'"), std::string::npos) << at;
    EXPECT_NE(with(bytes.substr(0, at)), "") << at;
  }
  EXPECT_EQ(with(bytes), "");
}

TEST(CheckedFile, WithoutCommitWhatStoodThereStays) {
  const CheckedFolder folder;
  const std::filesystem::path path = folder.path / "state";
  written(path);
  {
    CheckedWriter out(path);
    out.value(1);
  }
  EXPECT_EQ(outcome(path), "");
}

}  // namespace
}  // namespace lockstep
