// Memory for optimizer state: ordinary memory, or a mapped file (TrainerOptions::optimizer_folder) whose pages may be released between uses
// (TrainerOptions::release_state). Knows no optimizer. Used by the rank's thread.
//   StateFile file(backend, options); file.reserve(parameters, bytes); Buffer moment = file.allocate(i, rows, cols, MemoryCategory::optimizer);
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "train/options.h"

namespace lockstep {

class FileMemory;

class StateFile {
 public:
  StateFile(Backend& backend, const TrainerOptions& options) : backend_(backend), folder_(options.optimizer_folder), release_(options.release_state) {}

  // Reserves all of the file before anything is computed, so that a full disk is an error now; nothing is done for state in memory. `bytes`: of all
  // blocks (Device::file_bytes). Errors: io.
  void reserve(std::size_t parameters, std::size_t bytes);
  // A block of parameter i, zeros where it is in the file; else of `category`.
  Buffer allocate(std::size_t i, std::int64_t rows, std::int64_t cols, MemoryCategory category);
  bool holds() const { return file_ != nullptr; }
  // The file, where its pages are to leave memory; else null.
  std::shared_ptr<FileMemory> released() const { return release_ ? file_ : nullptr; }
  // Called around each use of a parameter's blocks, if their pages are to leave memory.
  void fetch(std::size_t i) const;
  void leave(std::size_t i) const;

 private:
  void advise(std::size_t i, void (FileMemory::*advice)(std::size_t, std::size_t) const) const;

  Backend& backend_;
  std::string folder_;
  bool release_;
  std::shared_ptr<FileMemory> file_;
  struct Block {
    std::size_t begin = 0, bytes = 0;
  };
  std::vector<std::vector<Block>> blocks_;  // of each parameter, in the file
};

}  // namespace lockstep
