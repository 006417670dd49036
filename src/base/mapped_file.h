// A file's bytes as memory, read as they are looked at. For files of our own that are replaced whole (base/file.h): one that somebody
// cuts short meanwhile would end the process. Any thread.
//   const auto file = MappedFile::open("weights.safetensors"); send(file->bytes());
#pragma once
#include <filesystem>
#include <memory>
#include <string_view>

namespace lockstep {

class MappedFile {
 public:
  // Errors: not_found, io.
  static std::shared_ptr<const MappedFile> open(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  std::string_view bytes() const { return {static_cast<const char*>(data_), size_}; }

 private:
  MappedFile() = default;
  void* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace lockstep
