#include "train/state_file.h"

#include "tensor/file_memory.h"

namespace lockstep {

void StateFile::reserve(std::size_t parameters, std::size_t bytes) {
  if (folder_.empty() || backend_.device().counting()) return;
  file_ = std::make_shared<FileMemory>(folder_, bytes);
  blocks_.resize(parameters);
}

Buffer StateFile::allocate(std::size_t i, std::int64_t rows, std::int64_t cols, MemoryCategory category) {
  if (folder_.empty()) return backend_.device().allocate(DType::f32, rows, cols, category);
  const std::size_t begin = file_ ? file_->taken() : 0;
  Buffer buffer = backend_.device().allocate_in(file_, DType::f32, rows, cols, MemoryCategory::optimizer_file);
  if (file_) blocks_[i].push_back({begin, file_->taken() - begin});
  return buffer;
}

void StateFile::advise(std::size_t i, void (FileMemory::*advice)(std::size_t, std::size_t) const) const {
  if (!file_ || !release_) return;
  for (const Block& block : blocks_[i]) backend_.stream().enqueue([file = file_, block, advice] { (file.get()->*advice)(block.begin, block.bytes); });
}
void StateFile::fetch(std::size_t i) const { advise(i, &FileMemory::prepare); }
void StateFile::leave(std::size_t i) const { advise(i, &FileMemory::release); }

}  // namespace lockstep
