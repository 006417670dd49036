// Keeps other processes out of a folder for as long as this object lives; it ends with the process, however that ends. The file
// `lock` in the folder holds it, and the process's number, for people; one that says something else is left alone. One owner.
//   const FolderLock lock(runs / "demo");
#pragma once
#include <filesystem>

namespace lockstep {

class FolderLock {
 public:
  // Errors: resource_exhausted (another process has it), already_exists (`lock` is somebody's own file), io.
  explicit FolderLock(const std::filesystem::path& folder);
  FolderLock(FolderLock&& other) noexcept;
  FolderLock& operator=(FolderLock&&) = delete;
  ~FolderLock();

 private:
  int descriptor_ = -1;
};

}  // namespace lockstep
