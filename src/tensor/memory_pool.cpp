#include "tensor/memory_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdlib>

#include "base/error.h"

namespace lockstep {

namespace {
constexpr std::size_t kLarge = std::size_t{64} << 10;  // from here on blocks are cut from chunks
constexpr std::size_t kGrain = 4096, kHugePage = std::size_t{2} << 20;
constexpr std::size_t kAddressSpace = std::size_t{1} << 47;
constexpr std::size_t kLeastChunk = std::size_t{32} << 20;
constexpr std::size_t kHuge = std::size_t{64} << 20;  // from here on a block is worth more than the idle pieces that are too small for it
#if defined(__SANITIZE_ADDRESS__)
constexpr bool kWatched = true;
#else
constexpr bool kWatched = false;
#endif

std::size_t round_up(std::size_t n, std::size_t unit) { return (n + unit - 1) / unit * unit; }
// Powers of two and the half steps between.
std::size_t small_class(std::size_t bytes) {
  if (bytes <= 256) return 256;
  const std::size_t power = std::bit_ceil(bytes);
  return bytes <= power / 4 * 3 ? power / 4 * 3 : power;
}
// Over all pools: bytes in chunks, and their limit (0: none).
std::atomic<std::int64_t> chunk_bytes{0}, chunk_limit{0};
std::mutex pools_mutex;
std::set<MemoryPool*> pools;  // those whose idle memory may be returned

bool reserve_chunk(std::size_t size) {
  const auto bytes = static_cast<std::int64_t>(size);
  const std::int64_t limit = chunk_limit, held = chunk_bytes.fetch_add(bytes) + bytes;
  if (limit <= 0 || held <= limit) return true;
  chunk_bytes -= bytes;
  return false;
}

[[noreturn]] void fail_allocation(std::size_t bytes) { fail(ErrorCode::resource_exhausted, "{} bytes of memory could not be allocated", bytes); }
}  // namespace

void limit_pooled_memory(std::int64_t bytes) { chunk_limit = bytes; }
std::int64_t pooled_memory() { return chunk_bytes; }
void trim_pooled_memory() {
  const std::lock_guard lock(pools_mutex);
  for (MemoryPool* pool : pools) pool->trim();
}

MemoryPool::MemoryPool(bool keep_chunks, Clock::duration period) : keep_chunks_(keep_chunks), period_(period) {
  if (keep_chunks) return;
  const std::lock_guard lock(pools_mutex);
  pools.insert(this);
}

MemoryPool::~MemoryPool() {
  {
    const std::lock_guard lock(pools_mutex);
    pools.erase(this);
  }
  chunk_bytes -= static_cast<std::int64_t>(held_);
  for (auto& [size, blocks] : small_)
    for (void* block : blocks.free) std::free(block);
  for (const auto& [address, size] : chunks_) munmap(reinterpret_cast<void*>(address), size);
}

void* MemoryPool::take(std::size_t bytes) {
  if (bytes > kAddressSpace) fail_allocation(bytes);
  std::lock_guard lock(mutex_);
  if (!kWatched && bytes >= kLarge) return take_large(round_up(bytes, kGrain));
  const std::size_t size = kWatched ? round_up(bytes, 64) : small_class(bytes);
  SmallBlocks& blocks = small_[size];
  if (!blocks.free.empty()) {
    void* block = blocks.free.back();
    blocks.free.pop_back();
    return block;
  }
  const bool kept = !kWatched || keep_chunks_;
  if (kept && blocks.free.capacity() <= blocks.made) blocks.free.reserve(2 * blocks.made + 8);
  void* block = std::aligned_alloc(64, round_up(size, 64));
  if (!block) fail_allocation(bytes);
  blocks.made += kept;
  return block;
}

void MemoryPool::give(void* block, std::size_t bytes) noexcept {
  if (kWatched && !keep_chunks_) return std::free(block);
  std::lock_guard lock(mutex_);
  if (!kWatched && bytes >= kLarge) return give_large(reinterpret_cast<Address>(block), round_up(bytes, kGrain));
  small_.find(kWatched ? round_up(bytes, 64) : small_class(bytes))->second.free.push_back(block);
}

void* MemoryPool::take_large(std::size_t size) {
  provide_nodes(taken_blocks_ + 2);  // for a new chunk and for freeing this block
  auto fit = free_by_size_.lower_bound({size, 0});
  if (fit == free_by_size_.end()) {
    // Idle pieces that are too small are returned first when both together would exceed the target.
    if (const std::size_t most = wanted(); !keep_chunks_) release_idle_chunks(most > size ? most - size : 0);
    if (size >= kHuge) make_room(size);
    add_chunk(size);
    fit = free_by_size_.lower_bound({size, 0});
  }
  const auto [whole, block] = *fit;
  erase_free(free_.find(block));
  if (whole > size) insert_free(block + size, whole - size);
  taken_ += size;
  most_ = std::max(most_, taken_);
  ++taken_blocks_;
  return reinterpret_cast<void*>(block);
}

void MemoryPool::give_large(Address block, std::size_t size) {
  taken_ -= size;
  --taken_blocks_;
  const auto after = free_.find(block + size);
  if (after != free_.end() && !chunks_.contains(block + size)) {
    size += after->second;
    erase_free(after);
  }
  if (!chunks_.contains(block)) {
    auto before = free_.lower_bound(block);
    if (before != free_.begin() && (--before)->first + before->second == block) {
      block = before->first;
      size += before->second;
      erase_free(before);
    }
  }
  insert_free(block, size);
  // Twice what is in use may lie idle, and so may what was in use a short while ago: a step's gradients and activations come and go, and the
  // system zeroes every page that it hands out.
  if (!keep_chunks_ && held_ - taken_ > 2 * taken_ + kLeastChunk) release_idle_chunks(wanted());
}

void MemoryPool::trim() {
  const std::lock_guard lock(mutex_);
  trim_locked();
}

void MemoryPool::trim_locked(std::size_t kept) {
  if (keep_chunks_) return;
  for (auto it = free_.begin(); it != free_.end() && held_ > kept;) {
    const auto [block, size] = *it++;
    const Address begin = round_up(block, kHugePage), end = (block + size) / kHugePage * kHugePage;
    if (end <= begin) continue;
    // The chunk keeps the part before the returned pages; the part after them becomes a chunk of its own.
    const auto chunk = std::prev(chunks_.upper_bound(block));
    const Address chunk_begin = chunk->first, chunk_end = chunk_begin + chunk->second;
    provide_nodes(taken_blocks_ + 3);
    if (end < chunk_end) chunks_.emplace(end, chunk_end - end);
    if (begin > chunk_begin) chunk->second = begin - chunk_begin;
    else chunks_.erase(chunk);
    erase_free(free_.find(block));
    if (begin > block) insert_free(block, begin - block);
    if (block + size > end) insert_free(end, block + size - end);
    munmap(reinterpret_cast<void*>(begin), end - begin);
    held_ -= end - begin;
    chunk_bytes -= static_cast<std::int64_t>(end - begin);
  }
}

// Activations of a long text have blocks of many sizes, each in a chunk of its own. Were all that lies idle kept, the pool would hold half as much again as is
// ever in use, and a plan, which counts what is in use, would be wrong by that. So what is held stays within a 32nd of the recent peak use.
void MemoryPool::make_room(std::size_t size) {
  const std::size_t most = std::max({most_, most_before_, taken_ + size}), held = most + most / 32;
  trim_locked(held > size ? held - size : 0);
}

// At the limit, and when the system is out of memory, idle memory is returned first; the chunk is then only as large as needed.
void MemoryPool::add_chunk(std::size_t size) {
  const std::size_t whole = round_up(std::max(size, kLeastChunk), kHugePage), least = round_up(size, kHugePage);
  if (try_add_chunk(whole)) return;
  trim_locked();
  if (try_add_chunk(whole) || (least < whole && try_add_chunk(least))) return;
  if (const std::int64_t limit = chunk_limit; limit > 0 && chunk_bytes + static_cast<std::int64_t>(least) > limit)
    fail(ErrorCode::resource_exhausted, "{} bytes of memory were asked for, {} of the allowed {} are held (--memory-megabytes)", size, chunk_bytes.load(),
         limit);
  fail_allocation(size);
}

bool MemoryPool::try_add_chunk(std::size_t size) {
  if (!reserve_chunk(size)) return false;
  // Maps one huge page more for alignment; the excess on either side is unmapped.
  const std::size_t mapped = size + kHugePage;
  void* const map = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (map == MAP_FAILED) {
    chunk_bytes -= static_cast<std::int64_t>(size);
    return false;
  }
  const auto begin = reinterpret_cast<Address>(map), chunk = round_up(begin, kHugePage);
  if (chunk > begin) munmap(map, chunk - begin);
  if (const std::size_t rest = begin + mapped - (chunk + size)) munmap(reinterpret_cast<void*>(chunk + size), rest);
  madvise(reinterpret_cast<void*>(chunk), size, MADV_HUGEPAGE);  // a hint: without it pages are small
  try {
    chunks_.emplace(chunk, size);
  } catch (...) {
    munmap(reinterpret_cast<void*>(chunk), size);
    chunk_bytes -= static_cast<std::int64_t>(size);
    throw;
  }
  held_ += size;
  insert_free(chunk, size);
  return true;
}

void MemoryPool::insert_free(Address block, std::size_t size) {
  Nodes nodes = std::move(nodes_.back());
  nodes_.pop_back();
  nodes.by_address.key() = block;
  nodes.by_address.mapped() = size;
  nodes.by_size.value() = {size, block};
  free_.insert(std::move(nodes.by_address));
  free_by_size_.insert(std::move(nodes.by_size));
}

void MemoryPool::erase_free(ByAddress::iterator block) {
  BySize::node_type by_size = free_by_size_.extract({block->second, block->first});
  nodes_.push_back({free_.extract(block), std::move(by_size)});
}

// Provides `count` spare nodes, and capacity for those in use.
void MemoryPool::provide_nodes(std::size_t count) {
  while (nodes_.size() < count) {
    const std::size_t all = nodes_.size() + free_.size() + 1;
    if (nodes_.capacity() < all) nodes_.reserve(2 * all);
    ByAddress by_address{{0, 0}};
    BySize by_size{{0, 0}};
    nodes_.push_back({by_address.extract(by_address.begin()), by_size.extract(by_size.begin())});
  }
}

// The recent peak use, and a quarter more for gaps between blocks.
std::size_t MemoryPool::wanted() {
  const Clock::time_point now = Clock::now();
  if (now - period_began_ >= period_) {
    most_before_ = most_;
    most_ = taken_;
    period_began_ = now;
  }
  const std::size_t most = std::max(most_, most_before_);
  return most + most / 4;
}

void MemoryPool::release_idle_chunks(std::size_t kept) {
  for (auto it = chunks_.begin(); it != chunks_.end() && held_ - taken_ > taken_ && held_ > kept;) {
    const auto [chunk, size] = *it;
    const auto idle = free_.find(chunk);
    if (idle == free_.end() || idle->second != size) {
      ++it;
      continue;
    }
    erase_free(idle);
    munmap(reinterpret_cast<void*>(chunk), size);
    held_ -= size;
    chunk_bytes -= static_cast<std::int64_t>(size);
    it = chunks_.erase(it);
  }
}

std::size_t MemoryPool::held() const {
  std::lock_guard lock(mutex_);
  return held_;
}
std::size_t MemoryPool::taken() const {
  std::lock_guard lock(mutex_);
  return taken_;
}

}  // namespace lockstep
