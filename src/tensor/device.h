// A device: memory with accounts, a stream, threads. Knows no kernel.
//   Device device(BackendKind::cpu, 2); Buffer b = device.allocate(DType::f32, rows, cols, MemoryCategory::workspace);
// Buffers come from a pool (memory_pool.h); a freed block is reused in stream order, so queued work stays valid.
// One thread at a time uses a device (the executor's); buffers may be freed from any thread.
#pragma once
#include <memory>
#include <vector>

#include "base/thread_pool.h"
#include "tensor/memory.h"
#include "tensor/stream.h"

namespace lockstep {

class FileMemory;
class BlockPool;

// Owns a view's device memory; copies share it.
class Buffer {
 public:
  Buffer() = default;
  const View& view() const { return view_; }
  explicit operator bool() const { return static_cast<bool>(block_); }
  void reset() { *this = Buffer(); }

 private:
  friend class Device;
  View view_;
  std::shared_ptr<void> block_;
};

class Device {
 public:
  Device(BackendKind kind, int threads);
  ~Device();
  Device(const Device&) = delete;

  BackendKind kind() const { return kind_; }
  bool traced() const { return kind_ == BackendKind::traced; }
  bool counting() const { return kind_ == BackendKind::counting; }
  Stream& stream() { return stream_; }
  ThreadPool& threads() { return threads_; }
  MemoryAccounts& memory() { return *memory_; }
  const MemoryAccounts& memory() const { return *memory_; }

  // Uninitialised, 64-byte aligned, rows x cols without gaps. Throws resource_exhausted when memory is out.
  Buffer allocate(DType dtype, std::int64_t rows, std::int64_t cols, MemoryCategory category);
  // The same, zeroed, in a file that the buffer keeps open. On a counting device `file` may be null.
  Buffer allocate_in(const std::shared_ptr<FileMemory>& file, DType dtype, std::int64_t rows, std::int64_t cols, MemoryCategory category);
  // From now on allocates from the other device's pool, so that memory that either frees serves both. Both devices must be used by one thread at a
  // time. Does nothing unless both are BackendKind::cpu: other kinds reuse freed blocks in the order of their own stream.
  void share_pool(const Device& other);
  // Bytes of file space that a buffer of `elements` elements takes.
  std::size_t file_bytes(DType dtype, std::int64_t elements) const;
  Buffer allocate_zero(DType dtype, std::int64_t rows, std::int64_t cols, MemoryCategory category);
  Buffer upload(const std::vector<float>& values, std::int64_t rows, std::int64_t cols, MemoryCategory category, DType dtype = DType::f32);
  Buffer upload(const std::vector<std::int32_t>& values, std::int64_t rows, std::int64_t cols, MemoryCategory category);

 private:
  // Wraps `block`; calls give(block) when the last copy of the buffer is dropped, or at once when this throws.
  template <class Give>
  Buffer make_buffer(void* block, DType dtype, std::int64_t rows, std::int64_t cols, MemoryCategory category, const Give& give);
  BackendKind kind_;
  ThreadPool threads_;
  std::shared_ptr<MemoryAccounts> memory_;
  std::shared_ptr<BlockPool> pool_;
  std::vector<std::shared_ptr<FileMemory>> files_;  // of a deferred device: queued work may use what was given back
  Stream stream_;                                   // last: its thread stops before anything it uses goes away
};

}  // namespace lockstep
