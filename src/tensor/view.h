// A view: where a matrix is in a device's memory. A plain value, copied into queued work; owns nothing. The address is a device handle: on the
// deferred backend (and on GPUs) the host cannot dereference it. Kernels convert it by tensor/device_pointer.h; the host reads through Stream::read
// only.
//   const View first = view.row_range(0, 1); first.cols == view.cols;
#pragma once
#include <cstdint>

#include "base/device_code.h"
#include "tensor/dtype.h"

namespace lockstep {

struct View {
  std::uint64_t address = 0;  // of element (0, 0); 0: no view
  DType dtype = DType::f32;
  std::uint8_t element_bytes = 4;
  std::int64_t rows = 0, cols = 0;
  std::int64_t stride = 0;  // elements from one row to the next

  LOCKSTEP_EVERYWHERE explicit operator bool() const { return address != 0; }
  LOCKSTEP_EVERYWHERE std::int64_t size() const { return rows * cols; }
  // Rows [begin, begin + count), columns [column, column + width).
  LOCKSTEP_EVERYWHERE View block(std::int64_t begin, std::int64_t count, std::int64_t column, std::int64_t width) const {
    View v = *this;
    v.address += static_cast<std::uint64_t>((begin * stride + column) * element_bytes);
    v.rows = count;
    v.cols = width;
    return v;
  }
  LOCKSTEP_EVERYWHERE View row_range(std::int64_t begin, std::int64_t count) const { return block(begin, count, 0, cols); }
  LOCKSTEP_EVERYWHERE View column_range(std::int64_t column, std::int64_t width) const { return block(0, rows, column, width); }
  // The same elements as another shape; only for views without gaps.
  LOCKSTEP_EVERYWHERE View reshape(std::int64_t new_rows, std::int64_t new_cols) const {
    View v = *this;
    v.rows = new_rows;
    v.cols = v.stride = new_cols;
    return v;
  }
};

}  // namespace lockstep
