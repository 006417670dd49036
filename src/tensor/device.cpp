#include "tensor/device.h"

#include "base/error.h"
#include "tensor/memory_pool.h"

namespace lockstep {

Device::Device(BackendKind kind, int threads)
    : kind_(kind), threads_(threads), memory_(std::make_shared<MemoryAccounts>()), pool_(std::make_shared<MemoryPool>(kind == BackendKind::deferred)),
      stream_(kind) {}

Device::~Device() = default;

Buffer Device::allocate(DType dtype, std::int64_t rows, std::int64_t cols, MemoryCategory category) {
  if (rows < 0 || cols < 0) fail(ErrorCode::internal, "a buffer of {} x {} was asked for", rows, cols);
  const std::int64_t element = element_size(dtype, traced());
  const auto bytes = static_cast<std::size_t>(rows * cols * element);
  // Vector loads of whole panels may touch up to one vector past a short row; the slack keeps them inside the block.
  const std::size_t size = bytes + 64;
  // What is only counted has an address all the same, which nothing may touch.
  void* block = counting() ? reinterpret_cast<void*>(kDeviceTag) : pool_->take(size);
  memory_->add(category, static_cast<std::int64_t>(bytes));
  Buffer buffer;
  buffer.block_ = std::shared_ptr<void>(block, [pool = counting() ? nullptr : pool_, memory = memory_, size, bytes, category](void* p) {
    memory->remove(category, static_cast<std::int64_t>(bytes));
    if (pool) pool->give(p, size);
  });
  View& v = buffer.view_;
  v.address = reinterpret_cast<std::uint64_t>(block) | (kind_ == BackendKind::deferred || counting() ? kDeviceTag : 0);
  v.dtype = dtype;
  v.element_bytes = static_cast<std::uint8_t>(element);
  v.rows = rows;
  v.cols = v.stride = cols;
  return buffer;
}

Buffer Device::allocate_zero(DType dtype, std::int64_t rows, std::int64_t cols, MemoryCategory category) {
  Buffer buffer = allocate(dtype, rows, cols, category);
  stream_.fill_zero(buffer.view());
  return buffer;
}

Buffer Device::upload(const std::vector<float>& values, std::int64_t rows, std::int64_t cols, MemoryCategory category, DType dtype) {
  Buffer buffer = allocate(dtype, rows, cols, category);
  stream_.write(buffer.view(), values);
  return buffer;
}

Buffer Device::upload(const std::vector<std::int32_t>& values, std::int64_t rows, std::int64_t cols, MemoryCategory category) {
  Buffer buffer = allocate(DType::i32, rows, cols, category);
  stream_.write(buffer.view(), values);
  return buffer;
}

}  // namespace lockstep
