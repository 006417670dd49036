// Templates over the virtual vector that every kernel uses. Included after the instruction set's pragma and so, like every
// template over V, compiled for it; an .inl need not include it.
#pragma once
#include "numerics/accumulator.h"
#include "numerics/elementary.h"
#include "numerics/form.h"

namespace lockstep {

// Prefetches what a kernel reads some lines later, in memory that it passes through once. Where each line takes some arithmetic, the processor
// prefetches too few lines by itself: with this, sums of squares went from 2.3 to 8.2 GB/s a thread (Xeon, family 6, model 167). Harmless beyond the
// end.
inline constexpr std::int64_t kElementsAhead = 512;
template <class T>
[[gnu::always_inline]] static inline void fetch_ahead(const T* at) {
  __builtin_prefetch(reinterpret_cast<const char*>(reinterpret_cast<std::uintptr_t>(at) + kElementsAhead * sizeof(float)));
}

// Calls f with a typed pointer to a view that is fp32 or bf16 (compute copies, caches).
template <class V, class F>
inline decltype(auto) with_stored(const View& v, const F& f) {
  if constexpr (std::is_same_v<typename V::Elem, typename V::Half>) {
    return f(device_pointer<typename V::Elem>(v));  // traced: one storage form
  } else {
    if (v.dtype == DType::bf16) return f(device_pointer<typename V::Half>(v));
    return f(device_pointer<typename V::Elem>(v));
  }
}
// Stores a vector to a cache that may be bf16 (rounded) or fp32; n lanes.
template <class V>
inline void store_as(const View& v, std::int64_t offset, const V& x, int n) {
  if (v.dtype == DType::bf16) x.store_half_partial(device_pointer<typename V::Half>(v) + offset, n);
  else x.store_partial(elements<V>(v) + offset, n);
}

}  // namespace lockstep
