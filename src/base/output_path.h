// Where a command writes because its user said so: nothing that others put there is ever lost. A folder that this program made
// has a mark, the file `.lockstep`, which says what the folder is for and which files of an export are the program's own.
// Knows nothing of what is written. One thread a path.
//   check_output_folder("out", Overwrite::no);                          // before the work: is there room for it?
//   OutputFolder out("out", Overwrite::no);  write(out.partial() / "config.json", ...);  out.commit();
//   claim_folder("runs/a", "run");                                      // a folder that a command goes on working in
#pragma once
#include <filesystem>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"

namespace lockstep {

// What is not yet in place has this behind its name, a name that nobody else gives a file: what a killed process left under it
// is written over.
inline constexpr const char* kPartial = ".lockstep.partial";

enum class Overwrite { no, yes };  // what the user said: --overwrite
constexpr Overwrite overwrite_if(bool given) { return given ? Overwrite::yes : Overwrite::no; }

// Refuses what must not be written over, and places that cannot be written: a file that exists and is not empty (without
// overwrite), a folder, a device, a link that leads nowhere. Returns the path behind links. Errors: already_exists,
// invalid_argument, not_found, io.
std::filesystem::path check_output_file(const std::filesystem::path& path, Overwrite overwrite);
// The same, then the file, whole or not at all.
void write_output_file(const std::filesystem::path& path, std::string_view data, Overwrite overwrite);

// Refuses all but a folder that does not exist yet, is empty or has the mark of an export; with overwrite any folder will do.
std::filesystem::path check_output_folder(const std::filesystem::path& path, Overwrite overwrite);

// An export, filled in partial() and put in place by commit(). A folder that does not exist, or holds nothing but an earlier export,
// appears whole or not at all. In one that holds other files too, each file of the export replaces the one of its name, other files
// stay, and files of the earlier export that the new one lacks go. Files alone, no folders. Errors: those of
// check_output_folder; already_exists when a folder has the name of a file; io.
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

// Makes the folder that a command keeps for `use` ("run", "state"), or takes one that is empty, has this use's mark, holds one of
// `signs` (names of files), or the lock that earlier versions left. Anything else is someone's: already_exists, and nothing
// is touched.
void claim_folder(const std::filesystem::path& path, std::string_view use, std::initializer_list<const char*> signs = {});

// Whether a file is a lock (base/folder_lock.h), held or not: a process's number and nothing else.
bool is_folder_lock(const std::filesystem::path& file);

}  // namespace lockstep
