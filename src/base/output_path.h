// Writes to paths that the user named, without ever destroying files that this program did not make.
//   check_output_folder("out", Overwrite::no);                          // before the work: may it be written?
//   OutputFolder out("out", Overwrite::no); write(out.partial() / "config.json"); out.commit();
//   claim_folder("runs/a", "run");                                      // a folder that a command goes on working in
// A folder that this program made has a mark, the file `.lockstep`, which names the folder's use and the files of an export that are the
// program's own. Knows nothing of the contents. One thread a path.
#pragma once
#include <filesystem>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"

namespace lockstep {

// Suffix of unfinished files, which no other program uses: leftovers of a killed process are overwritten.
inline constexpr const char* kPartial = ".lockstep.partial";
// The file that names this program's folders among a user's. A folder that is removed loses it last.
inline constexpr const char* kFolderMark = ".lockstep";

enum class Overwrite { no, yes };  // what the user said: --overwrite
constexpr Overwrite overwrite_if(bool given) { return given ? Overwrite::yes : Overwrite::no; }

// Refuses files that must not be overwritten and paths that cannot be written: an existing non-empty file (without
// overwrite), a folder, a device, a dangling link. Returns the path with links resolved. Errors: already_exists,
// invalid_argument, not_found, io.
std::filesystem::path check_output_file(const std::filesystem::path& path, Overwrite overwrite);
// The same check, then writes the file atomically.
void write_output_file(const std::filesystem::path& path, std::string_view data, Overwrite overwrite);

// Refuses all but a folder that does not exist yet, is empty or has the mark of an export; with overwrite any folder will do.
std::filesystem::path check_output_folder(const std::filesystem::path& path, Overwrite overwrite);

// An export, filled in partial() and published by commit(). A folder that does not exist, or holds only an earlier export, is written
// atomically. In one that holds other files too, each exported file replaces the one of its name, other files stay, and files of the earlier
// export that the new one lacks are removed. Only files, no subfolders. Errors: those of check_output_folder; already_exists when a folder
// has the name of a file; io.
class OutputFolder {
 public:
  OutputFolder(const std::filesystem::path& path, Overwrite overwrite);
  const std::filesystem::path& partial() const { return staged_.partial(); }
  void commit();

 private:
  std::filesystem::path path_;
  Overwrite overwrite_;
  AtomicFolder staged_;
};

// Creates the working folder of a command for `use` ("run", "state"), or accepts one that is empty, has this use's mark, holds one of
// `signs` (file names), or a lock of earlier versions. Anything else is a user's folder: error already_exists, and nothing is touched.
void claim_folder(const std::filesystem::path& path, std::string_view use, std::initializer_list<const char*> signs = {});

// Whether a file is a lock (base/folder_lock.h), held or not: it holds a process id and nothing else.
bool is_folder_lock(const std::filesystem::path& file);

}  // namespace lockstep
