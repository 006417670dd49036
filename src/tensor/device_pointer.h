// Converts a device address to a pointer: for kernels and streams only (tools/check_layers.py refuses it elsewhere).
//   float* values = device_pointer<float>(view);  // in a kernel
#pragma once
#include "tensor/stream.h"

namespace lockstep {

template <class T>
LOCKSTEP_EVERYWHERE inline T* device_pointer(const View& view) {
  return reinterpret_cast<T*>(view.address & ~kDeviceTag);
}

}  // namespace lockstep
