// What every kernel implementation (.inl) may use. Included before the instruction set's pragma, so that code of the
// standard library is never compiled for a wider instruction set than the machine has: an .inl includes nothing else.
// Shapes as suffixes: T rows (tokens), K inputs, N outputs, H heads, D head size, L latent, R rotary, E experts, V vocabulary.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/philox.h"
#include "base/thread_pool.h"
#include "kernels/table.h"
#include "numerics/element.h"
#include "numerics/isa/tiles.h"
#include "tensor/device_pointer.h"
#include "tensor/view.h"

namespace lockstep {

inline std::int32_t* ints(const View& v) { return device_pointer<std::int32_t>(v); }

// Lanes of the 16 that lie below `n` from `at` on.
inline int lanes_left(std::int64_t n, std::int64_t at) { return static_cast<int>(n - at < 16 ? n - at : 16); }

// Scratch that grows and stays, one a thread (workspaces of kernels: sized from lengths alone).
template <class T>
inline T* thread_scratch(std::size_t count) {
  thread_local std::vector<T> scratch;
  if (scratch.size() < count) scratch.resize(count);
  return scratch.data();
}

}  // namespace lockstep
