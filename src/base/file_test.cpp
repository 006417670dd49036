#include "base/file.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "base/child_process_test_tools.h"

namespace lockstep {
namespace fs = std::filesystem;
namespace {

constexpr std::size_t kLimit = 1 << 20;

class FileTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "lockstep-file-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder = name;
  }
  void TearDown() override { fs::remove_all(folder); }

  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(folder)) found.push_back(entry.path().filename());
    std::sort(found.begin(), found.end());
    return found;
  }
  fs::path folder;
};

template <class F>
ErrorCode code_of(F&& work, std::string* message = nullptr) {
  try {
    work();
  } catch (const Error& e) {
    if (message) *message = e.message();
    return e.code();
  }
  ADD_FAILURE() << "no Error";
  return ErrorCode::internal;
}

TEST_F(FileTest, WritesAndReadsBack) {
  const std::string data("a\0b\n", 4);
  write_file_atomic(folder / "x", "old and longer");
  write_file_atomic(folder / "x", data);
  EXPECT_EQ(read_file(folder / "x", kLimit), data);
  EXPECT_EQ(read_file(folder / "x", 4), data);
  write_file_atomic(folder / "empty", "");
  EXPECT_EQ(read_file(folder / "empty", 0), "");
  EXPECT_EQ(names(), (std::vector<std::string>{"empty", "x"}));
}

TEST_F(FileTest, ReadErrorsAreNamed) {
  std::string message;
  EXPECT_EQ(code_of([&] { read_file(folder / "none", kLimit); }, &message), ErrorCode::not_found);
  EXPECT_NE(message.find("none"), std::string::npos);
  EXPECT_EQ(code_of([&] { read_file(folder, kLimit); }), ErrorCode::io);
  write_file_atomic(folder / "x", "12345");
  EXPECT_EQ(code_of([&] { read_file(folder / "x", 4); }, &message), ErrorCode::resource_exhausted);
  EXPECT_NE(message.find("4 bytes"), std::string::npos);
}

TEST_F(FileTest, EndlessFileStopsAtTheLimit) {
  EXPECT_EQ(code_of([&] { read_file("/dev/zero", kLimit); }), ErrorCode::resource_exhausted);
}

TEST_F(FileTest, AbandonedWriteLeavesTheOldFileAndNothingElse) {
  write_file_atomic(folder / "x", "old");
  {
    AtomicFile file(folder / "x");
    file.write("new");
  }
  EXPECT_EQ(read_file(folder / "x", kLimit), "old");
  EXPECT_EQ(names(), std::vector<std::string>{"x"});
}

TEST_F(FileTest, WriteErrorsAreNamed) {
  EXPECT_EQ(code_of([&] { write_file_atomic(folder / "none" / "x", "a"); }), ErrorCode::not_found);
  EXPECT_EQ(code_of([&] { write_file_atomic("", "a"); }), ErrorCode::invalid_argument);
  fs::create_directories(folder / "d");
  EXPECT_EQ(code_of([&] { write_file_atomic(folder / "d", "a"); }), ErrorCode::io);
  EXPECT_EQ(names(), std::vector<std::string>{"d"});
}

// A full disk, as far as a test may make one: the process may write no more than 4096 bytes to a file.
TEST_F(FileTest, RefusedWriteLeavesTheOldFileAndNothingElse) {
  write_file_atomic(folder / "x", "old");
  const int status = in_child([&] {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{4096, 4096};
    setrlimit(RLIMIT_FSIZE, &limit);
    write_file_atomic(folder / "x", std::string(10000, 'n'));
  });
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 3);  // an Error io
  EXPECT_EQ(read_file(folder / "x", kLimit), "old");
  EXPECT_EQ(names(), std::vector<std::string>{"x"});
}

TEST_F(FileTest, KilledOrRefusedAtAnyPointLeavesOldOrNew) {
  for (const std::string point : {"file.opened", "file.written", "file.synced", "file.renamed"}) {
    for (const char* variable : {"LOCKSTEP_KILL_AT", "LOCKSTEP_FAIL_AT"}) {
      write_file_atomic(folder / "x", "old");
      const int status = in_child([&] {
        setenv(variable, (point + ":2").c_str(), 1);
        write_file_atomic(folder / "y", "first pass");
        write_file_atomic(folder / "x", "new");
      });
      const bool killed = std::string(variable) == "LOCKSTEP_KILL_AT";
      const bool ended_so = killed ? WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL : WIFEXITED(status) && WEXITSTATUS(status) == 3;
      EXPECT_TRUE(ended_so) << variable << " " << point;
      EXPECT_EQ(read_file(folder / "x", kLimit), point == "file.renamed" ? "new" : "old") << variable << " " << point;
      EXPECT_EQ(read_file(folder / "y", kLimit), "first pass");
      if (!killed) {
        EXPECT_EQ(names(), (std::vector<std::string>{"x", "y"})) << point;
      }
      write_file_atomic(folder / "x", "after");  // a leftover is no obstacle
      EXPECT_EQ(names(), (std::vector<std::string>{"x", "y"})) << point;
    }
  }
}

TEST_F(FileTest, WrongKillPointIsAnError) {
  const int status = in_child([&] {
    setenv("LOCKSTEP_KILL_AT", "file.written", 1);
    write_file_atomic(folder / "x", "a");
  });
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 4);
}

void fill(AtomicFolder& target, std::string_view text) {
  write_file_atomic(target.partial() / "weights", text);
  fs::create_directories(target.partial() / "inner");
  write_file_atomic(target.partial() / "inner" / "state", text);
}
std::string content(const fs::path& path) { return read_file(path / "weights", kLimit) + "|" + read_file(path / "inner" / "state", kLimit); }

TEST_F(FileTest, FolderAppearsWhole) {
  AtomicFolder target(folder / "a" / "step-1/");
  fill(target, "one");
  EXPECT_FALSE(fs::exists(folder / "a" / "step-1"));
  target.commit();
  EXPECT_EQ(content(folder / "a" / "step-1"), "one|one");
  EXPECT_FALSE(fs::exists(folder / "a" / "step-1.lockstep.partial"));
}

TEST_F(FileTest, ExistingFolderIsRefusedOrReplaced) {
  for (const char* text : {"one", "two"}) {
    AtomicFolder target(folder / "a", AtomicFolder::Existing::replace);
    fill(target, text);
    target.commit();
    EXPECT_EQ(content(folder / "a"), std::string(text) + "|" + text);
    EXPECT_EQ(names(), std::vector<std::string>{"a"});
  }
  EXPECT_EQ(code_of([&] { AtomicFolder refused(folder / "a"); }), ErrorCode::already_exists);
  EXPECT_EQ(content(folder / "a"), "two|two");
}

TEST_F(FileTest, AbandonedFolderIsRemoved) {
  {
    AtomicFolder target(folder / "a");
    fill(target, "one");
  }
  EXPECT_TRUE(names().empty());
}

TEST_F(FileTest, FolderKilledAtAnyPointIsOldOrNew) {
  for (const std::string point : {"folder.written", "folder.synced", "folder.renamed", "folder.old_removed"}) {
    fs::remove_all(folder / "a");
    AtomicFolder old(folder / "a");
    fill(old, "old");
    old.commit();
    const int status = in_child([&] {
      setenv("LOCKSTEP_KILL_AT", (point + ":1").c_str(), 1);
      AtomicFolder target(folder / "a", AtomicFolder::Existing::replace);
      fill(target, "new");
      target.commit();
    });
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << point;
    const bool replaced = point == "folder.renamed" || point == "folder.old_removed";
    EXPECT_EQ(content(folder / "a"), replaced ? "new|new" : "old|old") << point;
    AtomicFolder again(folder / "a", AtomicFolder::Existing::replace);  // a leftover is no obstacle
    fill(again, "again");
    again.commit();
    EXPECT_EQ(content(folder / "a"), "again|again") << point;
    EXPECT_EQ(names(), std::vector<std::string>{"a"}) << point;
  }
}

}  // namespace
}  // namespace lockstep
