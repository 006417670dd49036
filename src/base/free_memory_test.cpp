#include "base/free_memory.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

namespace lockstep {
namespace {
namespace fs = std::filesystem;
constexpr std::int64_t kMegabyte = std::int64_t{1} << 20;

// A machine's files, in a folder.
class FakeRoot {
 public:
  FakeRoot() : path_(fs::temp_directory_path() / ("lockstep-free-" + std::to_string(getpid()))) { fs::remove_all(path_); }
  ~FakeRoot() { fs::remove_all(path_); }
  void write(const std::string& file, const std::string& text) {
    fs::create_directories((path_ / file).parent_path());
    std::ofstream(path_ / file) << text;
  }
  FreeMemory free() const { return free_memory(path_, false); }

 private:
  fs::path path_;
};

TEST(FreeMemory, IsTheLeastOfWhatTheMachineAndEveryGroupLeave) {
  FakeRoot root;
  EXPECT_EQ(root.free().limit, "");  // nothing can be read
  root.write("proc/meminfo", "MemTotal: 9000 kB\nMemAvailable: 102400 kB\n");
  EXPECT_EQ(root.free().bytes, 100 * kMegabyte);
  EXPECT_EQ(root.free().limit, "MemAvailable");
  // Version 2: "max" limits nothing; the group above is smaller; pages of files that nobody maps are not used up.
  root.write("proc/self/cgroup", "0::/a/b\n");
  root.write("sys/fs/cgroup/a/b/memory.max", "max\n");
  root.write("sys/fs/cgroup/a/b/memory.current", "1000\n");
  EXPECT_EQ(root.free().limit, "MemAvailable");
  root.write("sys/fs/cgroup/a/memory.max", std::to_string(80 * kMegabyte));
  root.write("sys/fs/cgroup/a/memory.current", std::to_string(50 * kMegabyte));
  root.write("sys/fs/cgroup/a/memory.stat", "anon 5\ninactive_file " + std::to_string(20 * kMegabyte) + "\n");
  EXPECT_EQ(root.free().bytes, 50 * kMegabyte);
  EXPECT_EQ(root.free().limit, "cgroup");
  root.write("sys/fs/cgroup/a/b/memory.max", std::to_string(kMegabyte));
  root.write("sys/fs/cgroup/a/b/memory.current", std::to_string(3 * kMegabyte));
  EXPECT_EQ(root.free().bytes, 0);
}

TEST(FreeMemory, KnowsTheFirstVersionOfControlGroupsWithinAContainer) {
  FakeRoot root;
  root.write("proc/meminfo", "MemAvailable: 1024000 kB\n");
  root.write("proc/self/cgroup", "5:cpu,memory:/outside/name\n0::/\n");  // the path is the machine's, the files are the group's own
  root.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  root.write("sys/fs/cgroup/memory/memory.usage_in_bytes", "4096\n");
  EXPECT_EQ(root.free().limit, "MemAvailable");
  root.write("sys/fs/cgroup/memory/memory.limit_in_bytes", std::to_string(64 * kMegabyte));
  EXPECT_EQ(root.free().bytes, 64 * kMegabyte - 4096);
  EXPECT_EQ(root.free().limit, "cgroup");
  root.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "nonsense\n");
  EXPECT_EQ(root.free().limit, "MemAvailable");
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they map more than any limit here
TEST(FreeMemory, KnowsTheProcessesOwnLimits) {
  for (const auto which : {RLIMIT_AS, RLIMIT_DATA}) {
    const pid_t child = fork();
    if (child == 0) {
      const rlimit limit{512 * kMegabyte, 512 * kMegabyte};
      if (setrlimit(which, &limit) != 0) _exit(2);
      const FreeMemory free = free_memory();
      _exit(free.limit == (which == RLIMIT_AS ? "RLIMIT_AS" : "RLIMIT_DATA") && free.bytes > 64 * kMegabyte && free.bytes < 512 * kMegabyte ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(WEXITSTATUS(status), 0) << which;
  }
}
#endif

}  // namespace
}  // namespace lockstep
