// The CUDA forms of embedding.h. Forward: a thread an element. Backward: rows are brought into order by token id, which keeps their
// order within an id; then a thread an id and column sums the chains of its segments.
#include <cstring>

#include "kernels/cuda/prelude.h"
#include "numerics/packed.h"

namespace lockstep::LOCKSTEP_CUDA_SPACE {

namespace {
struct EmbeddingForwardBody {
  EmbeddingForward op;
  LOCKSTEP_DEVICE float element_of(std::int64_t token, std::int64_t i) const {
    const std::int64_t h = op.y.cols, panel = token / kLanes, lane = token % kLanes;
    if (is_packed_format(op.bits)) {
      const PackedShape shape{op.vocabulary, h, static_cast<PackedFormat>(op.bits)};
      return packed_element(device_pointer<std::uint8_t>(op.table) + panel * shape.panel_bytes(), shape, lane, i);
    }
    if (op.bits) {
      const QuantisedShape shape{op.vocabulary, h, op.bits};
      const std::uint8_t* scales = device_pointer<std::uint8_t>(op.table) + panel * shape.panel_bytes();
      Bf16 scale;
      memcpy(&scale, __builtin_assume_aligned(scales + (i / kQuantisedGroup * kLanes + lane) * 2, 2), 2);
      return static_cast<float>(quantised_integer(scales + shape.scale_bytes(), op.bits, lane, i)) * widen(scale);
    }
    return load_stored(op.table, op.packed ? (panel * h + i) * kLanes + lane : token * op.table.stride + i);
  }
  LOCKSTEP_DEVICE void operator()(std::int64_t item) const {
    const std::int64_t t = item / op.y.cols, i = item % op.y.cols;
    floats(op.y)[t * op.y.stride + i] = element_of(integers(op.token)[t], i);
  }
};

struct ForgetTokensBody {
  std::int32_t* present;  // [vocabulary]: whether the batch has the id
  LOCKSTEP_DEVICE void operator()(std::int64_t v) const { present[v] = 0; }
};

// Where row t stands among all rows by token id, rows of one id in their order.
struct OrderRowsBody {
  const std::int32_t* token;
  std::int64_t rows;
  std::int32_t *present, *order;
  LOCKSTEP_DEVICE void operator()(std::int64_t t) const {
    const std::int32_t own = token[t];
    std::int64_t before = 0;
    for (std::int64_t other = 0; other < rows; ++other) before += token[other] < own || (token[other] == own && other < t);
    order[before] = static_cast<std::int32_t>(t);
    present[own] = 1;  // every row of the id writes the same
  }
};

struct EmbeddingBackwardBody {
  EmbeddingBackward op;
  const std::int32_t* order;
  bool finish;
  LOCKSTEP_DEVICE void operator()(std::int64_t item) const {
    const std::int64_t rows = op.dy.rows, i = item % op.dy.cols;
    const std::int32_t *token = integers(op.token), *segment = integers(op.segment);
    std::int64_t at = item / op.dy.cols;
    const std::int32_t v = token[order[at]];
    if (at > 0 && token[order[at - 1]] == v) return;  // the thread of the id's first row does them all
    LaneBins bins(op.bins, v, i / kLanes, static_cast<int>(i % kLanes));
    while (at < rows && token[order[at]] == v) {
      const std::int32_t chain_segment = segment[order[at]];
      float sum = 0.0f;
      for (; at < rows && token[order[at]] == v && segment[order[at]] == chain_segment; ++at) sum = sum + floats(op.dy)[order[at] * op.dy.stride + i];
      bins.deposit(sum);
    }
    bins.close(finish, finish ? floats(op.gradient) + v * op.gradient.stride + i : nullptr);
  }
};

// The ids without rows, of a gradient that this call ends.
struct EmbeddingRestBody {
  EmbeddingBackward op;
  const std::int32_t* present;
  LOCKSTEP_DEVICE void operator()(std::int64_t item) const {
    const std::int64_t v = item / op.dy.cols, i = item % op.dy.cols;
    if (present[v]) return;
    LaneBins bins(op.bins, v, i / kLanes, static_cast<int>(i % kLanes));
    bins.close(true, floats(op.gradient) + v * op.gradient.stride + i);
  }
};
}  // namespace

void launch(const EmbeddingForward& op, Grid& grid) { grid.each(op.y.size(), EmbeddingForwardBody{op}); }

void launch(const EmbeddingBackward& op, Grid& grid) {
  const std::int64_t vocabulary = (op.bins ? op.bins : op.gradient).rows;
  const bool finish = op.finish || !op.bins;
  std::int32_t* present = grid.scratch<std::int32_t>(0, vocabulary);
  std::int32_t* order = grid.scratch<std::int32_t>(1, op.dy.rows);
  grid.each(vocabulary, ForgetTokensBody{present});
  grid.each(op.dy.rows, OrderRowsBody{device_pointer<std::int32_t>(op.token), op.dy.rows, present, order});
  grid.each(op.dy.size(), EmbeddingBackwardBody{op, order, finish});
  if (finish) grid.each(vocabulary * op.dy.cols, EmbeddingRestBody{op, present});
}

}  // namespace lockstep::LOCKSTEP_CUDA_SPACE
