// Files and folders: read whole, and written so that a crash, a full disk or a kill leaves the old or the new, never a
// mixture. Knows nothing of what is in them. Each call stands alone: two writers of one path need a lock of their own.
//   const std::string text = read_file(path, 1 << 20);
//   write_file_atomic(path, text);
//   AtomicFolder folder("runs/a/step-40");  write(folder.partial() / "weights", ...);  folder.commit();
#pragma once
#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

namespace lockstep {

// The bytes of a file. Errors: not_found; io (permission, a folder, ...); resource_exhausted above most_bytes.
std::string read_file(const std::filesystem::path& path, std::size_t most_bytes);

// A file written bit by bit beside its place (NAME.lockstep.partial), put there by commit(): fsync of the file, rename,
// fsync of its folder. Without commit() it is removed. Errors: io, with the system's word (disk full, ...).
class AtomicFile {
 public:
  explicit AtomicFile(std::filesystem::path path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  void write(const void* data, std::size_t bytes);
  void write(std::string_view text) { write(text.data(), text.size()); }
  void commit();  // once; then nothing more can be written

 private:
  void close_quietly();
  std::filesystem::path path_, partial_;
  int descriptor_ = -1;
  bool committed_ = false;
};
void write_file_atomic(const std::filesystem::path& path, std::string_view data);

// A folder filled in `NAME.lockstep.partial` and put in place whole by commit(): fsync of every file and folder in it, rename,
// fsync of the folder that holds it. What stood there is exchanged in the same step (replace), then removed, all of it: for places that are
// this program's own (base/output_path.h: a user's). What a crash left is removed at the start. Errors: already_exists without replace; io.
class AtomicFolder {
 public:
  enum class Existing { refuse, replace };
  explicit AtomicFolder(std::filesystem::path path, Existing existing = Existing::refuse);
  ~AtomicFolder();
  AtomicFolder(const AtomicFolder&) = delete;
  AtomicFolder& operator=(const AtomicFolder&) = delete;
  const std::filesystem::path& partial() const { return partial_; }
  void commit();

 private:
  std::filesystem::path path_, partial_;
  Existing existing_;
  bool committed_ = false;
};

// The file's or folder's own bytes to the disk. Errors: io.
void sync_path(const std::filesystem::path& path);

// A place where crash tests stop the process or refuse it the disk. In the program that is released it is nothing (kill_point.cpp); in
// those that tests run it does what the environment says (tests/tools/faults.cpp):
//   LOCKSTEP_KILL_AT=point:n   LOCKSTEP_FAIL_AT=point:n
// Points here: file.opened, file.written, file.synced, file.renamed, folder.written, folder.synced, folder.renamed,
// folder.old_removed. Others name their own.
void kill_point(std::string_view point);

}  // namespace lockstep
