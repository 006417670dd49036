#include "tensor/device.h"

#include "base/error.h"
#include "tensor/file_memory.h"
#include "tensor/memory_pool.h"

namespace lockstep {

static std::shared_ptr<BlockPool> block_pool(BackendKind kind) {
  if (kind == BackendKind::cuda) return std::make_shared<CudaMemoryPool>();
  return std::make_shared<MemoryPool>(queued(kind));
}

Device::Device(BackendKind kind, int threads)
    : kind_(kind), threads_(threads), memory_(std::make_shared<MemoryAccounts>()), pool_(block_pool(kind)), stream_(kind) {}

Device::~Device() = default;

namespace {
// Vector loads of whole panels may touch up to one vector past a short row; the slack keeps them inside the block.
constexpr std::size_t kSlack = 64;

void check_shape(std::int64_t rows, std::int64_t cols) {
  if (rows < 0 || cols < 0) fail(ErrorCode::internal, "a buffer of {} x {} was asked for", rows, cols);
}
}  // namespace

template <class Give>
Buffer Device::make_buffer(void* block, DType dtype, std::int64_t rows, std::int64_t cols, MemoryCategory category, const Give& give) {
  const std::int64_t element = element_size(dtype, traced()), bytes = rows * cols * element;
  memory_->add(category, bytes);
  Buffer buffer;
  buffer.block_ = std::shared_ptr<void>(block, [give, memory = memory_, bytes, category](void* p) {
    memory->remove(category, bytes);
    give(p);
  });
  View& v = buffer.view_;
  v.address = reinterpret_cast<std::uint64_t>(block) | (queued(kind_) || kind_ == BackendKind::cuda || counting() ? kDeviceTag : 0);
  v.dtype = dtype;
  v.element_bytes = static_cast<std::uint8_t>(element);
  v.rows = rows;
  v.cols = v.stride = cols;
  return buffer;
}

void Device::share_pool(const Device& other) {
  if (kind_ == BackendKind::cpu && other.kind_ == BackendKind::cpu) pool_ = other.pool_;
}

Buffer Device::allocate(DType dtype, std::int64_t rows, std::int64_t cols, MemoryCategory category) {
  check_shape(rows, cols);
  // A counted buffer still has an address, which nothing may dereference.
  if (counting()) return make_buffer(reinterpret_cast<void*>(kDeviceTag), dtype, rows, cols, category, [](void*) {});
  const std::size_t size = static_cast<std::size_t>(rows * cols * element_size(dtype, traced())) + kSlack;
  return make_buffer(pool_->take(size), dtype, rows, cols, category, [pool = pool_, size](void* block) { pool->give(block, size); });
}

Buffer Device::allocate_in(const std::shared_ptr<FileMemory>& file, DType dtype, std::int64_t rows, std::int64_t cols, MemoryCategory category) {
  check_shape(rows, cols);
  if (counting()) return make_buffer(reinterpret_cast<void*>(kDeviceTag), dtype, rows, cols, category, [](void*) {});
  if (kind_ == BackendKind::cuda) fail(ErrorCode::unsupported, "an optimizer state in a file on the device 'cuda', allowed is memory");
  if (queued(kind_) && (files_.empty() || files_.back() != file)) files_.push_back(file);
  return make_buffer(file->take(file_bytes(dtype, rows * cols)), dtype, rows, cols, category, [file](void*) {});
}

std::size_t Device::file_bytes(DType dtype, std::int64_t elements) const {
  return FileMemory::block_bytes(static_cast<std::size_t>(elements * element_size(dtype, traced())) + kSlack);
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
