// Reads files whole, and writes files and folders atomically: a crash, a full disk or a kill leaves the old or the new content, never a mix.
//   const std::string text = read_file(path, 1 << 20);
//   write_file_atomic(path, text);
//   AtomicFolder folder("runs/a/step-40"); write_file_atomic(folder.partial() / "weights", text); folder.commit();
// Knows nothing of the contents. Two writers of one path need a lock of their own.
#pragma once
#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

namespace lockstep {

// The bytes of a file. Errors: not_found; io (permission, a folder, ...); resource_exhausted above most_bytes.
std::string read_file(const std::filesystem::path& path, std::size_t most_bytes);

// A file written piece by piece under a temporary name (NAME.lockstep.partial); commit() does fsync of the file, rename and
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

// A folder filled as `NAME.lockstep.partial` and published whole by commit(): fsync of everything in it, rename, fsync of its parent.
// With replace, an existing folder is exchanged atomically and then deleted with all its contents: only for paths that this program owns
// (base/output_path.h is for a user's). Leftovers of a crash are removed at the start. Errors: already_exists without replace; io.
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

// fsync of a file or a folder. Errors: io.
void sync_path(const std::filesystem::path& path);

// A point where crash tests kill the process or make the disk fail. In the released program it does nothing (kill_point.cpp); in
// test programs it does what the environment says (tests/tools/faults.cpp):
//   LOCKSTEP_KILL_AT=point:n   LOCKSTEP_FAIL_AT=point:n
// Points here: file.opened, file.written, file.synced, file.renamed, folder.written, folder.synced, folder.renamed,
// folder.old_removed, mark.opened (output_path.h). Others name their own.
void kill_point(std::string_view point);

}  // namespace lockstep
