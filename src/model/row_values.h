// The values of a forward that may be stored per row, and read by a later forward of the same rows. They are numbered in the order in which the
// forward computes them; each is f32 [T, width], T the rows of the batch. A RowSink receives them; a RowSource has them already, so that the forward
// need not compute them. Used by the thread that runs the forward.
//   ForwardOptions options; options.row_values = RowValues::segments; options.row_sink = &sink;
#pragma once
#include <cstdint>

#include "tensor/device.h"

namespace lockstep {

// What the values are. segments: the output of each segment of layers (model/operations/segment.h). operations: the outputs of costly operations
// (model/operations/make_rows.h), from which the rest is cheap to recompute.
enum class RowValues { segments, operations };

class RowSink {
 public:
  virtual ~RowSink() = default;
  // `rows` lie in `memory`; who keeps a copy of the Buffer keeps them. A sink that copies the rows queues that on the device's stream before it
  // returns, since they may be overwritten later.
  virtual void output(std::int64_t value, const View& rows, const Buffer& memory) = 0;
};

// Its values have the bits that the forward would compute.
class RowSource {
 public:
  virtual ~RowSource() = default;
  // How many of the batch's rows a forward need not compute for it: they count as read.
  virtual std::int64_t rows_read() const = 0;
  virtual std::int64_t width(std::int64_t value) const = 0;
  // Fills `rows` with a value; may be called repeatedly.
  virtual void read(std::int64_t value, const View& rows) = 0;
  // Whether the forward computes the values nevertheless, to compare them.
  virtual bool recomputes() const { return false; }
  // `made` was computed from equal inputs. Error internal if it differs from what read() gives.
  virtual void compare(std::int64_t value, const View& made) {}
};

}  // namespace lockstep
