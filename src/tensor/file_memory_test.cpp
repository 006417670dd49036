// Memory in a file: zeros, room that is reserved or refused, nothing left on the disk.
#include "tensor/file_memory.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>

#include "base/error.h"
#include "tensor/device.h"

namespace lockstep {
namespace {
namespace fs = std::filesystem;

struct Folder {
  fs::path path = fs::path(::testing::TempDir()) / ("lockstep-file-memory-" + std::to_string(getpid()));
  Folder() { fs::create_directories(path); }
  ~Folder() { fs::remove_all(path); }
  std::ptrdiff_t files() const { return std::distance(fs::directory_iterator(path), fs::directory_iterator()); }
};

TEST(FileMemory, BlocksAreZerosAlignedAndApart) {
  const Folder folder;
  FileMemory file(folder.path, FileMemory::block_bytes(100) + FileMemory::block_bytes(64));
  auto* const a = static_cast<unsigned char*>(file.take(100));
  auto* const b = static_cast<unsigned char*>(file.take(64));
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(a) % 64, 0u);
  EXPECT_EQ(b - a, 128);
  EXPECT_TRUE(std::all_of(a, a + 192, [](unsigned char c) { return c == 0; }));
  std::fill(a, a + 192, 7);
  EXPECT_EQ(file.taken(), 192u);
  try {
    file.take(1);
    FAIL() << "a block beyond the end was given";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::internal);
  }
  EXPECT_EQ(folder.files(), 0);  // it has no name
}

TEST(FileMemory, ABufferKeepsItsFileOnEveryDevice) {
  const Folder folder;
  for (const BackendKind kind : {BackendKind::cpu, BackendKind::deferred, BackendKind::counting}) {
    Device device(kind, 1);
    auto file = device.counting() ? nullptr : std::make_shared<FileMemory>(folder.path, 2 * device.file_bytes(DType::f32, 300));
    const Buffer a = device.allocate_in(file, DType::f32, 3, 100, MemoryCategory::optimizer_file);
    Buffer b = device.allocate_in(file, DType::f32, 3, 100, MemoryCategory::optimizer_file);
    file.reset();
    EXPECT_EQ(device.memory().current(MemoryCategory::optimizer_file), 2400);
    EXPECT_EQ(device.memory().peak_of_all(), 0);  // memory it is not
    b.reset();
    EXPECT_EQ(device.memory().current(MemoryCategory::optimizer_file), 1200);
    if (device.counting()) continue;
    device.stream().write(a.view(), std::vector<float>(300, 2.5f));
    EXPECT_EQ(device.stream().read(a.view()).get(), std::vector<float>(300, 2.5f));
  }
}

// Bytes of files that this process has in memory, those of a file system in memory too.
std::int64_t file_bytes_in_memory() {
  std::ifstream status("/proc/self/status");
  std::int64_t bytes = 0;
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("RssFile:") || line.starts_with("RssShmem:")) bytes += std::stoll(line.substr(line.find(':') + 1)) * 1024;
  return bytes;
}

TEST(FileMemory, WhatIsReleasedLeavesMemoryAndKeepsItsValues) {
  const Folder folder;
  constexpr std::size_t kBytes = std::size_t{32} << 20;
  FileMemory file(folder.path, 2 * kBytes);
  auto* const a = static_cast<unsigned char*>(file.take(kBytes));
  auto* const b = static_cast<unsigned char*>(file.take(kBytes));
  const std::int64_t before = file_bytes_in_memory();
  std::fill(a, a + kBytes, 7);
  std::fill(b, b + kBytes, 9);
  const std::int64_t used = file_bytes_in_memory();
  EXPECT_GT(used - before, std::int64_t{60} << 20);
  file.release(100, kBytes - 100);  // not at a page: the neighbours stay as they are
  EXPECT_LT(file_bytes_in_memory() - before, std::int64_t{36} << 20);
  EXPECT_TRUE(std::all_of(a, a + kBytes, [](unsigned char c) { return c == 7; }));
  file.release(0, 2 * kBytes);
  file.prepare(kBytes, kBytes);
  EXPECT_LT(file_bytes_in_memory() - before, std::int64_t{36} << 20);
  EXPECT_TRUE(std::all_of(b, b + kBytes, [](unsigned char c) { return c == 9; }));
}

// Work that is queued on a deferred device may touch what its last buffer has dropped.
TEST(FileMemory, ADeferredDeviceKeepsTheFileForQueuedWork) {
  const Folder folder;
  Device device(BackendKind::deferred, 1);
  for (int i = 0; i < 20; ++i) {
    const Buffer b = device.allocate_in(std::make_shared<FileMemory>(folder.path, device.file_bytes(DType::f32, 1 << 16)), DType::f32, 1, 1 << 16,
                                        MemoryCategory::optimizer_file);
    device.stream().write(b.view(), std::vector<float>(1 << 16, 1.0f));
  }
  device.stream().synchronize();
}

std::string refusal_of(const fs::path& folder, std::size_t bytes) {
  try {
    FileMemory file(folder, bytes);
  } catch (const Error& e) {
    return std::string(error_code_name(e.code())) + ": " + e.what();
  }
  return "";
}

TEST(FileMemory, NoRoomIsOneErrorAndLeavesNothing) {
  const Folder folder;
  EXPECT_NE(refusal_of(folder.path / "none", 64).find("io: 64 bytes could not be reserved"), std::string::npos);
  const std::string full = refusal_of(folder.path, std::size_t{1} << 60);  // no disk has it
  EXPECT_NE(full.find("io: 1152921504606846976 bytes could not be reserved"), std::string::npos) << full;
  EXPECT_EQ(folder.files(), 0);
  // A limit on file sizes would be a signal if the file were written past it.
  const pid_t child = fork();
  if (child == 0) {
    const rlimit limit{4096, 4096};
    setrlimit(RLIMIT_FSIZE, &limit);
    _exit(refusal_of(folder.path, 8192).find("File too large") != std::string::npos && refusal_of(folder.path, 4096).empty() ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

}  // namespace
}  // namespace lockstep
