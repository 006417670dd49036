#include "base/lfs_pointer.h"

#include <filesystem>

#include "base/error.h"

namespace lockstep {

void refuse_lfs_pointer(std::string_view path, std::string_view bytes) {
  if (!bytes.starts_with(kLfsPointer)) return;
  const std::string folder = std::filesystem::path(path).parent_path().string();
  fail(ErrorCode::corrupt_file, "'{}' is a Git LFS pointer, not the file itself; `git lfs install && git lfs pull` in '{}' fetches the file", path,
       folder.empty() ? "." : folder);
}

}  // namespace lockstep
