// Shared by every kernel implementation (.inl). Included before the instruction set's pragma, so that standard
// library code is never compiled for a wider instruction set than the machine has: an .inl includes nothing else.
// Shapes as suffixes: T rows (tokens), K inputs, N outputs, H heads, D head size, L latent, R rotary, E experts, V vocabulary.
#pragma once
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/philox.h"
#include "base/thread_pool.h"
#include "kernels/cache/pages.h"
#include "kernels/elements.h"
#include "kernels/table.h"
#include "numerics/element.h"
#include "numerics/isa/tiles.h"
#include "numerics/isa/transpose.h"
#include "tensor/device_pointer.h"
#include "tensor/view.h"

namespace lockstep {

// Lanes of the 16 that lie below `n` from `at` on.
inline int lanes_left(std::int64_t n, std::int64_t at) { return static_cast<int>(n - at < 16 ? n - at : 16); }

template <class T>
struct CacheLineAllocator {
  using value_type = T;
  CacheLineAllocator() = default;
  template <class U>
  CacheLineAllocator(const CacheLineAllocator<U>&) {}
  T* allocate(std::size_t count) { return static_cast<T*>(::operator new (count * sizeof(T), std::align_val_t{64})); }
  void deallocate(T* block, std::size_t) { ::operator delete (block, std::align_val_t{64}); }
  bool operator==(const CacheLineAllocator&) const { return true; }
};

// Scratch that grows and stays, one per thread and `Use` (workspaces of kernels: sized from lengths alone). It begins at a cache
// line: a vector that lies across two costs two loads.
template <class T, int Use = 0>
inline T* thread_scratch(std::size_t count) {
  thread_local std::vector<T, CacheLineAllocator<T>> scratch;
  if (scratch.size() < count) scratch.resize(count);
  return scratch.data();
}

}  // namespace lockstep
