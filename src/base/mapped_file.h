// A file mapped into memory. Only for this program's own files, which are replaced whole (base/file.h): truncating a mapped file would kill
// the process. Any thread.
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
