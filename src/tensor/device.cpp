#include "tensor/device.h"

#include <bit>
#include <cstdlib>
#include <map>
#include <mutex>
#include <vector>

#include "base/error.h"

namespace lockstep {

// Free blocks by size class (powers of two and the half steps between), kept for reuse.
struct Device::Pool {
  std::mutex mutex;
  std::map<std::size_t, std::vector<void*>> free;

  static std::size_t size_class(std::size_t bytes) {
    if (bytes <= 256) return 256;
    const std::size_t power = std::bit_ceil(bytes);
    return bytes <= power / 4 * 3 ? power / 4 * 3 : power;
  }
  void* take(std::size_t size) {
    {
      std::lock_guard lock(mutex);
      auto it = free.find(size);
      if (it != free.end() && !it->second.empty()) {
        void* block = it->second.back();
        it->second.pop_back();
        return block;
      }
    }
    void* block = std::aligned_alloc(64, (size + 63) / 64 * 64);
    if (!block) fail(ErrorCode::resource_exhausted, "{} bytes of memory could not be allocated", size);
    return block;
  }
  void give(void* block, std::size_t size, bool queued) {
    // Large blocks go back to the system, unless work still queued may use them.
    if (size > (std::size_t{64} << 20) && !queued) return std::free(block);
    std::lock_guard lock(mutex);
    free[size].push_back(block);
  }
  ~Pool() {
    for (auto& [size, blocks] : free)
      for (void* block : blocks) std::free(block);
  }
};

Device::Device(BackendKind kind, int threads)
    : kind_(kind), threads_(threads), memory_(std::make_shared<MemoryAccounts>()), pool_(std::make_shared<Pool>()),
      stream_(kind == BackendKind::deferred, kind == BackendKind::traced) {}

Device::~Device() = default;

Buffer Device::allocate(DType dtype, std::int64_t rows, std::int64_t cols, MemoryCategory category) {
  if (rows < 0 || cols < 0) fail(ErrorCode::internal, "a buffer of {} x {} was asked for", rows, cols);
  const std::int64_t element = element_size(dtype, traced());
  const auto bytes = static_cast<std::size_t>(rows * cols * element);
  // Vector loads of whole panels may touch up to one vector past a short row; the slack keeps them inside the block.
  const std::size_t size = Pool::size_class(bytes + 64);
  void* block = pool_->take(size);
  memory_->add(category, static_cast<std::int64_t>(bytes));
  Buffer buffer;
  buffer.block_ = std::shared_ptr<void>(block, [pool = pool_, memory = memory_, size, bytes, category, queued = kind_ == BackendKind::deferred](void* p) {
    memory->remove(category, static_cast<std::int64_t>(bytes));
    pool->give(p, size, queued);
  });
  View& v = buffer.view_;
  v.address = reinterpret_cast<std::uint64_t>(block) | (kind_ == BackendKind::deferred ? kDeviceTag : 0);
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
