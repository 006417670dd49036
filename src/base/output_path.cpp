#include "base/output_path.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "base/error.h"
#include "base/folder_entries.h"
#include "base/folder_lock.h"

namespace lockstep {
namespace fs = std::filesystem;

namespace {
constexpr const char* kExport = "export";

struct Mark {
  bool there = false;
  std::string use;
  std::vector<std::string> files;  // of an export
};

// "lockstep USE", then one file's name a line.
Mark read_mark(const fs::path& folder) {
  Mark mark;
  std::error_code error;
  if (!fs::is_regular_file(fs::symlink_status(folder / kFolderMark, error))) return mark;
  std::string text = read_file(folder / kFolderMark, std::size_t{1} << 20);
  std::vector<std::string> lines;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  constexpr std::string_view kFirst = "lockstep ";
  if (lines.empty() || !lines[0].starts_with(kFirst)) return mark;
  mark.there = true;
  mark.use = lines[0].substr(kFirst.size());
  for (std::size_t i = 1; i < lines.size(); ++i)
    if (!lines[i].empty() && lines[i].find('/') == std::string::npos && lines[i] != "." && lines[i] != "..") mark.files.push_back(lines[i]);
  return mark;
}

std::string mark_text(std::string_view use, const std::vector<std::string>& files) {
  std::string text = fmt::format("lockstep {}\n", use);
  for (const std::string& file : files) text += file + "\n";
  return text;
}

// Not atomic: whoever is killed in it leaves a folder that was_only_begun().
void write_new_mark(const fs::path& folder, std::string_view use) {
  const fs::path path = folder / kFolderMark;
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666);
  const std::string text = mark_text(use, {});
  bool written = false;
  int why = errno;
  if (descriptor >= 0) {
    struct Closer {
      int descriptor;
      ~Closer() { ::close(descriptor); }
    } closer{descriptor};
    kill_point("mark.opened");
    written = ::write(descriptor, text.data(), text.size()) == static_cast<ssize_t>(text.size());
    why = errno;
  }
  if (!written) fail(ErrorCode::io, "cannot write '{}': {}", path.string(), std::generic_category().message(why));
}

// What a kill at the very start leaves: an empty folder, or one with nothing but the beginning of a mark of this use.
bool was_only_begun(const fs::path& folder, std::string_view use) {
  const std::vector<std::string> names = entries_in(folder);
  if (names.empty()) return true;
  std::error_code error;
  if (names.size() > 1 || names[0] != kFolderMark || !fs::is_regular_file(fs::symlink_status(folder / kFolderMark, error))) return false;
  const std::string whole = mark_text(use, {});
  return fs::file_size(folder / kFolderMark, error) < whole.size() && !error && whole.starts_with(read_file(folder / kFolderMark, whole.size()));
}

// Where an export is put together, and this program began it.
bool is_staged_export(const fs::path& partial) { return read_mark(partial).use == kExport || was_only_begun(partial, kExport); }

bool holds(const std::vector<std::string>& names, const std::string& name) { return std::find(names.begin(), names.end(), name) != names.end(); }

// Files of a folder that are neither the mark nor named by it.
std::vector<std::string> others_in(const fs::path& folder, const Mark& mark) {
  std::vector<std::string> others;
  for (const std::string& name : entries_in(folder)) {
    std::error_code error;
    const bool is_folder = fs::is_directory(fs::symlink_status(folder / name, error));
    if (name == kFolderMark || (name == fmt::format("{}{}", kExport, kPartial) && is_folder && is_staged_export(folder / name))) continue;
    if (!holds(mark.files, name) || is_folder) others.push_back(name);
  }
  return others;
}

// The path with links resolved, "a/" read as "a". A dangling link is refused, since its target is the user's to create.
fs::path behind_links(fs::path path) {
  if (!path.has_filename() && path.has_parent_path()) path = path.parent_path();
  if (path.empty()) fail(ErrorCode::invalid_argument, "the path is empty; allowed is where something can be written");
  std::error_code error;
  const fs::file_status here = fs::symlink_status(path, error);
  if (!fs::exists(here)) return path;
  const fs::path resolved = fs::canonical(path, error);
  if (error) fail(ErrorCode::already_exists, "'{}' is a link that leads nowhere ({}); remove it, or name another place", path.string(), error.message());
  return resolved;
}

// Whether an existing folder is writable, by trying.
void probe(const fs::path& folder) {
  std::string name = (folder / ".lockstep-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) fail(ErrorCode::io, "cannot write in '{}': {}", folder.string(), std::generic_category().message(errno));
  rmdir(name.c_str());
}

fs::path parent_folder(const fs::path& path) { return path.has_parent_path() ? path.parent_path() : fs::path("."); }

fs::path nearest_existing(fs::path path) {
  std::error_code error;
  while (!fs::exists(path, error)) {
    const fs::path above = parent_folder(path);
    if (above == path) break;
    path = above;
  }
  return path;
}

bool own_file_system(const fs::path& folder) {
  struct stat here {
  }, above{};
  return stat(folder.c_str(), &here) == 0 && stat((folder / "..").c_str(), &above) == 0 && here.st_dev != above.st_dev;
}

// Beside the folder, so that it can be renamed into place; inside it where that is impossible (a mounted volume) or wrong
// (the folder holds a user's files).
fs::path staging_of(const fs::path& path) {
  std::error_code error;
  if (!fs::exists(path, error)) return path;
  return own_file_system(path) || !others_in(path, read_mark(path)).empty() ? path / kExport : path;
}

fs::path partial_of(const fs::path& staging) {
  fs::path partial = staging;
  partial += kPartial;
  return partial;
}
}  // namespace

fs::path check_output_file(const fs::path& given, Overwrite overwrite) {
  const fs::path path = behind_links(given);
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (fs::is_directory(status)) fail(ErrorCode::already_exists, "'{}' is a folder, and a file would be written; name a file", given.string());
  if (fs::exists(status) && !fs::is_regular_file(status)) fail(ErrorCode::invalid_argument, "'{}' is no regular file; name one, or a new one", given.string());
  if (fs::exists(status) && overwrite == Overwrite::no && fs::file_size(path, error) > 0)
    fail(ErrorCode::already_exists, "'{}' exists; --overwrite writes over it, or name another file", given.string());
  const fs::path parent = parent_folder(path);
  if (!fs::is_directory(parent, error)) fail(ErrorCode::not_found, "cannot create '{}': there is no folder '{}'", given.string(), parent.string());
  if (fs::exists(status) && ::access(path.c_str(), W_OK) != 0)
    fail(ErrorCode::io, "cannot write '{}': {}", given.string(), std::generic_category().message(errno));
  probe(parent);
  return path;
}

void write_output_file(const fs::path& path, std::string_view data, Overwrite overwrite) { write_file_atomic(check_output_file(path, overwrite), data); }

fs::path check_output_folder(const fs::path& given, Overwrite overwrite) {
  const fs::path path = behind_links(given);
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (fs::exists(status) && !fs::is_directory(status))
    fail(ErrorCode::already_exists, "'{}' is a file, and a folder would be written; name a new folder", given.string());
  if (fs::exists(status) && overwrite == Overwrite::no) {
    const Mark mark = read_mark(path);
    const std::vector<std::string> others = others_in(path, mark);
    if (!others.empty() && mark.use != kExport)
      fail(ErrorCode::already_exists,
           "'{}' holds files that are no export of this program ('{}'{}); name a new or empty folder, or --overwrite writes into it and replaces only files of "
           "the export's own names",
           given.string(), others[0], others.size() > 1 ? fmt::format(" and {} more", others.size() - 1) : "");
  }
  const fs::path staging = staging_of(path), partial = partial_of(staging);
  if (const fs::file_status left = fs::symlink_status(partial, error); fs::exists(left) && (!fs::is_directory(left) || !is_staged_export(partial)))
    fail(ErrorCode::already_exists, "'{}' is in the way: the export is put together there; move it, or name another folder", partial.string());
  const fs::path above = nearest_existing(parent_folder(staging));
  if (!fs::is_directory(above, error)) fail(ErrorCode::io, "cannot create '{}': '{}' is no folder", given.string(), above.string());
  probe(above);
  return path;
}

OutputFolder::OutputFolder(const fs::path& path, Overwrite overwrite)
    : path_(check_output_folder(path, overwrite)), overwrite_(overwrite), staged_(staging_of(path_), AtomicFolder::Existing::replace) {
  write_new_mark(partial(), kExport);
}

void OutputFolder::commit() {
  std::vector<std::string> files = entries_in(partial());
  std::erase(files, kFolderMark);
  std::error_code error;
  for (const std::string& file : files)
    if (!fs::is_regular_file(fs::symlink_status(partial() / file, error))) fail(ErrorCode::internal, "an export holds '{}', which is no file", file);
  write_file_atomic(partial() / kFolderMark, mark_text(kExport, files));
  const bool whole = partial() == partial_of(path_);
  const bool exists = fs::exists(fs::symlink_status(path_, error));
  const Mark before = exists ? read_mark(path_) : Mark{};
  const std::vector<std::string> others = exists ? others_in(path_, before) : std::vector<std::string>{};
  if (whole && others.empty()) return staged_.commit();

  // In a folder with a user's files: one file after the other. Those files may have appeared since this began.
  check_output_folder(path_, overwrite_);
  for (const std::string& file : files)
    if (fs::is_directory(fs::symlink_status(path_ / file, error)))
      fail(ErrorCode::already_exists, "'{}' is a folder, and the export has a file of this name; move it", (path_ / file).string());
  std::vector<std::string> both = files;
  for (const std::string& file : before.files)
    if (!holds(both, file)) both.push_back(file);
  for (const std::string& file : files) sync_path(partial() / file);
  write_file_atomic(path_ / kFolderMark, mark_text(kExport, both));  // a crash from here on leaves files that the mark names
  for (const std::string& file : files) {
    fs::rename(partial() / file, path_ / file, error);
    if (error) fail(ErrorCode::io, "cannot write '{}': {}", (path_ / file).string(), error.message());
  }
  for (const std::string& file : before.files)
    if (!holds(files, file) && !fs::is_directory(fs::symlink_status(path_ / file, error))) fs::remove(path_ / file, error);
  write_file_atomic(path_ / kFolderMark, mark_text(kExport, files));
  sync_path(path_);
}

void claim_folder(const fs::path& path, std::string_view use, std::initializer_list<const char*> signs) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) fail(ErrorCode::io, "cannot create '{}': {}", path.string(), error.message());
  const Mark mark = read_mark(path);
  if (mark.there && mark.use == use) return;
  const std::vector<std::string> names = entries_in(path);
  const bool known = !mark.there && ((is_folder_lock(path / "lock") && fs::file_size(path / "lock", error) > 0) ||
                                     std::any_of(signs.begin(), signs.end(), [&](const char* sign) { return holds(names, sign); }));
  if (!known && !was_only_begun(path, use))
    fail(ErrorCode::already_exists, "'{}' holds files that are not of a {} of this program ('{}'); name a new or empty folder", path.string(), use,
         names[0] == kFolderMark && names.size() > 1 ? names[1] : names[0]);
  write_new_mark(path, use);
}

}  // namespace lockstep
