// A file that is read at any position, or bytes in memory that stand for one. Reads with pread: a file truncated meanwhile is an Error, not a
// signal as under mmap.
//   const ByteFile file = ByteFile::open("model.safetensors"); file.read(8, buffer, 100);
// Knows no format. Several threads may read.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>

namespace lockstep {

class ByteFile {
 public:
  // Errors: not_found; io (also for what is no regular file).
  static ByteFile open(const std::filesystem::path& path);
  // `label` stands for the path in messages.
  static ByteFile from_bytes(std::string bytes, std::string label);
  ByteFile(ByteFile&& other) noexcept;
  ByteFile& operator=(ByteFile&& other) noexcept;
  ~ByteFile();

  const std::string& label() const { return label_; }
  std::uint64_t size() const { return size_; }
  // The `bytes` bytes from `at` on, which must be below size(). Errors: io; corrupt_file when the file became shorter.
  void read(std::uint64_t at, void* to, std::size_t bytes) const;

 private:
  ByteFile() = default;
  int descriptor_ = -1;
  std::string memory_, label_;  // memory: the contents, when there is no descriptor
  std::uint64_t size_ = 0;
};

}  // namespace lockstep
