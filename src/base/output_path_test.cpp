#include "base/output_path.h"

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <map>

#include "base/child_process_test_tools.h"
#include "base/error.h"
#include "base/folder_lock.h"

namespace lockstep {
namespace fs = std::filesystem;
namespace {

class OutputPathTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "lockstep-output-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { fs::remove_all(folder_); }

  // A project that is no business of ours.
  fs::path project(const char* name) const {
    const fs::path path = folder_ / name;
    fs::create_directories(path / "src");
    write_file_atomic(path / "src" / "main.py", "print()");
    write_file_atomic(path / ".env", "KEY=1");
    write_file_atomic(path / "config.json", "theirs");
    fs::create_symlink(path / ".env", path / "link");
    return path;
  }
  // Every path below the folder, with what it holds.
  std::map<std::string, std::string> all() const {
    std::map<std::string, std::string> found;
    for (const auto& entry : fs::recursive_directory_iterator(folder_)) {
      const std::string name = fs::relative(entry.path().parent_path(), folder_) / entry.path().filename();
      found[name] = entry.is_symlink() ? "-> " + fs::read_symlink(entry.path()).string() : entry.is_directory() ? "/" : read_file(entry.path(), 1 << 20);
    }
    return found;
  }
  fs::path folder_;
};

void write_export(const fs::path& path, Overwrite overwrite, std::initializer_list<const char*> names, const std::string& text) {
  OutputFolder out(path, overwrite);
  for (const char* name : names) write_file_atomic(out.partial() / name, text);
  out.commit();
}

template <class F>
void refused(ErrorCode code, const char* words, F&& work) {
  try {
    work();
    ADD_FAILURE() << "no Error with " << words;
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), code) << e.what();
    EXPECT_NE(std::string(e.what()).find(words), std::string::npos) << e.what();
  }
}

TEST_F(OutputPathTest, ANewAndAnEmptyFolderAndAnEarlierExport) {
  fs::create_directories(folder_ / "empty");
  for (const char* name : {"new", "a/b/new", "empty", "new/", "empty"}) {
    write_export(folder_ / name, Overwrite::no, {"config.json", "old-shard"}, "one");
    write_export(folder_ / name, Overwrite::no, {"config.json"}, name);
    EXPECT_EQ(read_file(folder_ / name / "config.json", 100), name);
    EXPECT_FALSE(fs::exists(folder_ / name / "old-shard")) << name;
  }
  for (const auto& [name, text] : all()) EXPECT_EQ(name.find("partial"), std::string::npos) << name;
}

TEST_F(OutputPathTest, FilesOfOthersAreRefusedOrKept) {
  const fs::path theirs = project("theirs");
  fs::create_directory_symlink(theirs, folder_ / "to-theirs");
  fs::create_symlink(folder_ / "nowhere", folder_ / "dangling");
  write_file_atomic(folder_ / "file", "text");
  auto before = all();
  for (const char* name : {"theirs", "to-theirs"})
    refused(ErrorCode::already_exists, "--overwrite", [&] { write_export(folder_ / name, Overwrite::no, {"config.json"}, "ours"); });
  for (const Overwrite overwrite : {Overwrite::no, Overwrite::yes}) {
    refused(ErrorCode::already_exists, "is a file", [&] { write_export(folder_ / "file", overwrite, {"config.json"}, "ours"); });
    refused(ErrorCode::already_exists, "leads nowhere", [&] { write_export(folder_ / "dangling", overwrite, {"config.json"}, "ours"); });
    refused(ErrorCode::io, "no folder", [&] { write_export(folder_ / "file" / "inner", overwrite, {"config.json"}, "ours"); });
    refused(ErrorCode::io, "cannot write in", [&] { write_export("/proc/nothing-here", overwrite, {"config.json"}, "ours"); });
    refused(ErrorCode::already_exists, "is a folder", [&] { write_export(theirs, Overwrite::yes, {"a", "src"}, "ours"); });
  }
  EXPECT_EQ(all(), before);

  write_export(folder_ / "to-theirs", Overwrite::yes, {"config.json", "weights"}, "ours");
  write_export(theirs, Overwrite::no, {"config.json"}, "ours");  // marked now: theirs stay all the same
  before["theirs/config.json"] = "ours";
  before["theirs/.lockstep"] = "lockstep export\nconfig.json\n";
  EXPECT_EQ(all(), before);
}

TEST_F(OutputPathTest, WhatIsBesideStays) {
  for (const char* name : {"new.partial", "new.old"}) fs::rename(project("made"), folder_ / name);
  write_file_atomic(folder_ / "report.html.partial", "theirs");
  auto before = all();
  write_export(folder_ / "new", Overwrite::no, {"config.json"}, "one");
  write_export(folder_ / "new", Overwrite::no, {"config.json"}, "two");
  write_output_file(folder_ / "report.html", "ours", Overwrite::no);
  const auto after = all();
  for (const auto& [name, text] : before) EXPECT_EQ(after.count(name) ? after.at(name) : "lost", text) << name;
  // Even under the very name that an export is put together at.
  fs::rename(folder_ / "new.old", folder_ / "other.lockstep.partial");
  before = all();
  refused(ErrorCode::already_exists, "in the way", [&] { write_export(folder_ / "other", Overwrite::yes, {"config.json"}, "ours"); });
  EXPECT_EQ(all(), before);
}

TEST_F(OutputPathTest, AKillLeavesOldOrNewAndNothingInTheWay) {
  for (const bool shared : {false, true}) {
    const fs::path path = folder_ / (shared ? "shared" : "own");
    write_export(path, Overwrite::no, {"a", "b"}, "old");
    if (shared) write_file_atomic(path / "notes", "theirs");
    for (const std::string point : {"mark.opened:1", "file.written:1", "file.written:2", "folder.written:1", "folder.renamed:1", "file.written:3",
                                    "file.renamed:3", "file.renamed:4", "file.renamed:5", "folder.removing:1", "folder.removing:2"}) {
      const auto killed_at = [&](const std::string& place) {
        return in_child([&] {
          setenv("LOCKSTEP_KILL_AT", place.c_str(), 1);
          write_export(path, Overwrite::no, {"a", "b"}, "new");
          _exit(0);
        });
      };
      const int status = killed_at(point);
      if (point == "file.written:3") {
        EXPECT_TRUE(WIFSIGNALED(killed_at("folder.removing:1")));  // and again, where the leftovers of that go
      }
      if (!shared) {
        EXPECT_EQ(read_file(path / "a", 100), read_file(path / "b", 100)) << point;
      } else {
        EXPECT_EQ(read_file(path / "notes", 100), "theirs") << point;
      }
      EXPECT_TRUE(WIFSIGNALED(status) || WIFEXITED(status));
      write_export(path, Overwrite::no, {"a", "b"}, "again");
      EXPECT_EQ(read_file(path / "a", 100) + read_file(path / "b", 100), "againagain") << point;
    }
  }
  for (const auto& [name, text] : all()) EXPECT_EQ(name.find("partial"), std::string::npos) << name;
}

TEST_F(OutputPathTest, Files) {
  write_file_atomic(folder_ / "file", "theirs");
  write_file_atomic(folder_ / "empty", "");
  fs::create_symlink(folder_ / "file", folder_ / "link");
  project("folder");
  auto before = all();
  for (const char* name : {"file", "link"})
    refused(ErrorCode::already_exists, "--overwrite", [&] { write_output_file(folder_ / name, "ours", Overwrite::no); });
  for (const Overwrite overwrite : {Overwrite::no, Overwrite::yes}) {
    refused(ErrorCode::already_exists, "is a folder", [&] { write_output_file(folder_ / "folder", "ours", overwrite); });
    refused(ErrorCode::invalid_argument, "no regular file", [&] { write_output_file("/dev/null", "ours", overwrite); });
    refused(ErrorCode::not_found, "there is no folder", [&] { write_output_file(folder_ / "none" / "x", "ours", overwrite); });
  }
  EXPECT_EQ(all(), before);
  write_output_file(folder_ / "empty", "ours", Overwrite::no);
  write_output_file(folder_ / "link", "ours", Overwrite::yes);  // what it leads to; the link stays
  before["./empty"] = before["./file"] = "ours";
  EXPECT_EQ(all(), before);
}

TEST_F(OutputPathTest, ClaimedFolders) {
  claim_folder(folder_ / "new", "run");
  claim_folder(folder_ / "new", "run");
  refused(ErrorCode::already_exists, "not of a state", [&] { claim_folder(folder_ / "new", "state"); });
  // A kill between the making of the mark and its filling leaves a folder that can be claimed again; other files keep theirs.
  const int status = in_child([&] {
    setenv("LOCKSTEP_KILL_AT", "mark.opened:1", 1);
    claim_folder(folder_ / "killed", "run");
    _exit(0);
  });
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(read_file(folder_ / "killed" / ".lockstep", 100), "");
  claim_folder(folder_ / "killed", "run");
  refused(ErrorCode::already_exists, "not of a state", [&] { claim_folder(folder_ / "killed", "state"); });
  const fs::path theirs = project("theirs");
  for (const char* text : {"", "lock", "lockstep", "a mark of theirs"}) {
    fs::create_directories(folder_ / "mark");
    write_file_atomic(folder_ / "mark" / ".lockstep", text);
    if (std::string_view(text) == "a mark of theirs") refused(ErrorCode::already_exists, "not of a run", [&] { claim_folder(folder_ / "mark", "run"); });
    else claim_folder(folder_ / "mark", "run");
    fs::remove_all(folder_ / "mark");
    write_file_atomic(theirs / ".lockstep", text);
    refused(ErrorCode::already_exists, "not of a run", [&] { claim_folder(theirs, "run"); });
  }
  fs::remove(theirs / ".lockstep");
  write_file_atomic(theirs / "lock", "a lock of theirs");
  const auto before = all();
  refused(ErrorCode::already_exists, "not of a run", [&] { claim_folder(theirs, "run"); });
  refused(ErrorCode::already_exists, "not this program's", [&] { FolderLock lock(theirs); });
  EXPECT_EQ(all(), before);
  claim_folder(theirs, "state", {".env"});
  // Folders that were made before there were marks have a lock.
  const fs::path earlier = project("earlier");
  { FolderLock lock(earlier); }
  claim_folder(earlier, "run");
}

}  // namespace
}  // namespace lockstep
