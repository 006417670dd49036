// Memory in a file instead of in RAM: what is seldom touched (an optimizer's state) may lie there, and the system keeps as much of
// it in memory as there is room for. The file has no name: nothing is left of it however the process ends, and nobody can shorten
// it. All its room is reserved at the start, so that a full disk is an error here and never a signal in the middle of a step.
// Blocks are mapped; load() and store() reach the same values without touching the mapping, which costs a page fault every 4 KiB.
// Knows no device. One thread takes; blocks are never given back one by one.
//   auto file = std::make_shared<FileMemory>("runs", bytes); void* block = file->take(FileMemory::block_bytes(1000));
#pragma once
#include <cstddef>
#include <filesystem>

#include "tensor/view.h"

namespace lockstep {

class FileMemory {
 public:
  // A file in `folder`, which must be there. Errors: io, with the system's word (no room, no permission, a limit on file sizes).
  FileMemory(const std::filesystem::path& folder, std::size_t bytes);
  ~FileMemory();
  FileMemory(const FileMemory&) = delete;
  FileMemory& operator=(const FileMemory&) = delete;

  // What a block of so many bytes takes of the file.
  static std::size_t block_bytes(std::size_t bytes) { return (bytes + 63) / 64 * 64; }
  // Zeros, aligned to 64. Error internal beyond the file's end.
  void* take(std::size_t bytes);
  std::size_t taken() const { return taken_; }
  // Hints about [begin, begin + bytes) of the file, whose values stay: that part leaves this process's memory until it is touched
  // again (the system writes it to the disk when it wants the room); or it is about to be used, all of it. Any thread, at any time.
  void release(std::size_t begin, std::size_t bytes) const;
  void prepare(std::size_t begin, std::size_t bytes) const;

  // Whether a view lies in the file.
  bool holds(const View& view) const;
  // Copies between a view in the file and one of as many bytes in memory, both without gaps. Any threads, of parts that do not
  // overlap. Error io, with the system's word.
  void load(const View& to, const View& from) const;
  void store(const View& to, const View& from) const;

 private:
  void advise(std::size_t begin, std::size_t bytes, int advice) const;
  std::size_t bytes_, taken_ = 0;
  void* map_ = nullptr;
  int descriptor_ = -1;
};

}  // namespace lockstep
