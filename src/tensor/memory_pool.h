// A caching allocator for buffers: freed blocks are reused, also for other sizes, so that a step's activations use the memory of the last step's
// gradients. Small blocks by size class; large ones are cut from chunks of huge pages and merged with free neighbours. give() never allocates: its
// nodes are reserved when a block is taken, so an out-of-memory error can unwind. All pools of the process may share a limit: at the limit idle
// memory goes back to the system first, and what still does not fit is an error (the kernel would kill the process). Knows no device and no category.
// Thread-safe. Under AddressSanitizer every block is the system's, so that it can be checked.
//   MemoryPool pool(false); void* block = pool.take(bytes); pool.give(block, bytes);
#pragma once
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

namespace lockstep {

// The most bytes that all pools together may hold for large blocks; 0: no limit. Any thread.
void limit_pooled_memory(std::int64_t bytes);
std::int64_t pooled_memory();  // bytes that all pools together hold for large blocks, idle ones included
// Returns all pools' idle memory to the system. Any thread.
void trim_pooled_memory();

// Where a device's blocks come from.
class BlockPool {
 public:
  virtual ~BlockPool() = default;
  // At least `bytes`, aligned to 64; contents undefined. Throws resource_exhausted.
  virtual void* take(std::size_t bytes) = 0;
  // Frees a block of take(); `bytes` is the number that take() was given.
  virtual void give(void* block, std::size_t bytes) noexcept = 0;
};

class MemoryPool : public BlockPool {
 public:
  using Clock = std::chrono::steady_clock;

  // keep_chunks: nothing goes back to the system before destruction, since queued work may still use freed blocks.
  // period: memory up to the peak use of the current and the previous period stays cached, since the next step needs it again.
  explicit MemoryPool(bool keep_chunks, Clock::duration period = std::chrono::seconds(10));
  ~MemoryPool() override;
  MemoryPool(const MemoryPool&) = delete;
  MemoryPool& operator=(const MemoryPool&) = delete;

  void* take(std::size_t bytes) override;
  void give(void* block, std::size_t bytes) noexcept override;
  // Bytes that the pool holds for large blocks, and how many of them are in use.
  std::size_t held() const;
  std::size_t taken() const;
  // Returns idle memory to the system, in whole huge pages.
  void trim();

 private:
  using Address = std::uintptr_t;
  using ByAddress = std::map<Address, std::size_t>;
  using BySize = std::set<std::pair<std::size_t, Address>>;
  struct SmallBlocks {
    std::vector<void*> free;  // with room for all that were made
    std::size_t made = 0;
  };
  struct Nodes {
    ByAddress::node_type by_address;
    BySize::node_type by_size;
  };
  void* take_large(std::size_t size);
  void give_large(Address block, std::size_t size);
  void add_chunk(std::size_t size);
  bool try_add_chunk(std::size_t size);
  // Of idle memory as much as makes what is held at most `kept`.
  void trim_locked(std::size_t kept = 0);
  void make_room(std::size_t size);
  void insert_free(Address block, std::size_t size);
  void erase_free(ByAddress::iterator block);
  void provide_nodes(std::size_t count);
  std::size_t wanted();
  void release_idle_chunks(std::size_t kept);

  const bool keep_chunks_;
  const Clock::duration period_;
  mutable std::mutex mutex_;
  std::map<std::size_t, SmallBlocks> small_;  // by size class
  ByAddress chunks_;                          // of the system
  ByAddress free_;                            // neighbours in a chunk are always joined
  BySize free_by_size_;
  std::vector<Nodes> nodes_;  // unused: one at least for each large block that is taken
  std::size_t held_ = 0, taken_ = 0, taken_blocks_ = 0;
  std::size_t most_ = 0, most_before_ = 0;  // taken at once: in this period, and in the one before
  Clock::time_point period_began_ = Clock::now();
};

}  // namespace lockstep
