#include "base/folder_files.h"

#include "base/file.h"

namespace lockstep {

bool FolderOnDisk::has(const std::string& name) const {
  std::error_code error;
  return std::filesystem::exists(folder_ / name, error);
}

std::string FolderOnDisk::read(const std::string& name, std::size_t most_bytes) const { return read_file(folder_ / name, most_bytes); }

}  // namespace lockstep
