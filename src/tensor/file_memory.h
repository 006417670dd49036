// Memory in a file instead of RAM, for rarely used state such as an optimizer's; the system caches as much of it as fits.
//   auto file = std::make_shared<FileMemory>("runs", bytes); void* block = file->take(FileMemory::block_bytes(1000));
// The file has no name: it disappears however the process ends, and nobody can truncate it. Its space is reserved at the start, so a full disk is
// an error here and never a signal in the middle of a step. Blocks are mapped; load() and store() reach the same values without the mapping,
// which costs a page fault every 4 KiB. Blocks are never freed one by one. Knows no device. One thread allocates.
#pragma once
#include <cstddef>
#include <filesystem>

#include "tensor/view.h"

namespace lockstep {

class FileMemory {
 public:
  // A file in `folder`, which must exist. Errors: io, with the system's message (disk full, no permission, a limit on file sizes).
  FileMemory(const std::filesystem::path& folder, std::size_t bytes);
  ~FileMemory();
  FileMemory(const FileMemory&) = delete;
  FileMemory& operator=(const FileMemory&) = delete;

  // File space that a block of `bytes` bytes takes.
  static std::size_t block_bytes(std::size_t bytes) { return (bytes + 63) / 64 * 64; }
  // Zeros, aligned to 64. Error internal beyond the file's end.
  void* take(std::size_t bytes);
  std::size_t taken() const { return taken_; }
  // Hints for [begin, begin + bytes) of the file; values do not change. release: the pages may leave this process's memory until touched
  // again (the system writes them to disk when it needs memory). prepare: all of them are about to be used. Any thread, at any time.
  void release(std::size_t begin, std::size_t bytes) const;
  void prepare(std::size_t begin, std::size_t bytes) const;

  // Whether a view lies in the file.
  bool holds(const View& view) const;
  // Copies between a view in the file and one of as many bytes in memory, both without gaps. Any threads, of parts that do not
  // overlap. Error io, with the system's message.
  void load(const View& to, const View& from) const;
  void store(const View& to, const View& from) const;

 private:
  void advise(std::size_t begin, std::size_t bytes, int advice) const;
  std::size_t bytes_, taken_ = 0;
  void* map_ = nullptr;
  int descriptor_ = -1;
};

}  // namespace lockstep
