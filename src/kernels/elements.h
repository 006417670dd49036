// Pointers to a view's elements in kernel code, on CPUs and GPUs.
#pragma once
#include "tensor/device_pointer.h"

namespace lockstep {

LOCKSTEP_EVERYWHERE inline std::int32_t* ints(const View& v) { return device_pointer<std::int32_t>(v); }

// fp32, or {value, hash} on the traced backend.
template <class V>
LOCKSTEP_EVERYWHERE inline typename V::Elem* elements(const View& v) {
  return device_pointer<typename V::Elem>(v);
}

}  // namespace lockstep
