// Locks a folder against other processes for as long as this object lives; the kernel releases it however the process ends. One owner.
//   const FolderLock lock(runs / "demo");
// The lock is on a file `lock` in the folder, which holds the process id for people to read; a `lock` with other contents is not touched.
#pragma once
#include <filesystem>

namespace lockstep {

class FolderLock {
 public:
  // Errors: resource_exhausted (another process holds it), already_exists (`lock` is a user's own file), io.
  explicit FolderLock(const std::filesystem::path& folder);
  FolderLock(FolderLock&& other) noexcept;
  FolderLock& operator=(FolderLock&&) = delete;
  ~FolderLock();

 private:
  int descriptor_ = -1;
};

}  // namespace lockstep
