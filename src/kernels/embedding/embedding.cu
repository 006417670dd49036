// The CUDA forms of embedding.h. Forward: one thread per element. Backward: rows are sorted stably by token id; then one thread per
// id and column sums the chains of its segments.
#include <cstring>

#include "kernels/embedding/row_order.h"
#include "numerics/low_bit.h"

namespace lockstep::LOCKSTEP_CUDA_SPACE {

namespace {
struct EmbeddingForwardBody {
  EmbeddingForward op;
  LOCKSTEP_DEVICE float element_of(std::int64_t token, std::int64_t i) const {
    const std::int64_t h = op.y.cols, panel = token / kLanes, lane = token % kLanes;
    if (is_low_bit_format(op.bits)) {
      const LowBitShape shape{op.vocabulary, h, static_cast<LowBitFormat>(op.bits)};
      return low_bit_element(device_pointer<std::uint8_t>(op.table) + panel * shape.panel_bytes(), shape, lane, i);
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
    floats(op.y)[t * op.y.stride + i] = element_of(ints(op.token)[t], i);
  }
};

// Whether the batch has an id.
struct ForgetTokensBody {
  std::int32_t* present;  // [vocabulary]
  LOCKSTEP_DEVICE void operator()(std::int64_t v) const { present[v] = 0; }
};
struct MarkTokensBody {
  const std::int32_t* token;
  std::int32_t* present;
  LOCKSTEP_DEVICE void operator()(std::int64_t t) const { present[token[t]] = 1; }  // every row of the id writes the same
};

struct EmbeddingBackwardBody {
  EmbeddingBackward op;
  const std::int32_t* order;
  bool finish;
  LOCKSTEP_DEVICE void operator()(std::int64_t item) const {
    const std::int64_t at = item / op.dy.cols, i = item % op.dy.cols;
    const std::int32_t* token = ints(op.token);
    const std::int32_t v = token[order[at]];
    if (at > 0 && token[order[at - 1]] == v) return;  // the thread of the id's first row does them all
    BinGroup<Lane> bins(op.bins, v, i / kLanes, i % kLanes);
    deposit_rows_of_id(bins, op.dy, token, ints(op.segment), order, at, i);
    bins.close(finish, finish ? floats(op.gradient) + v * op.gradient.stride + i : nullptr);
  }
};

// Writes the gradient of ids that no row of the batch has, in a call with `finish`.
struct EmbeddingRestBody {
  EmbeddingBackward op;
  const std::int32_t* present;
  LOCKSTEP_DEVICE void operator()(std::int64_t item) const {
    const std::int64_t v = item / op.dy.cols, i = item % op.dy.cols;
    if (present[v]) return;
    BinGroup<Lane> bins(op.bins, v, i / kLanes, i % kLanes);
    bins.close(true, floats(op.gradient) + v * op.gradient.stride + i);
  }
};
}  // namespace

void launch(const EmbeddingForward& op, Grid& grid) { grid.each(op.y.size(), EmbeddingForwardBody{op}); }

void launch(const EmbeddingBackward& op, Grid& grid) {
  const std::int64_t vocabulary = (op.bins ? op.bins : op.gradient).rows;
  const bool finish = op.finish || !op.bins;
  const std::int32_t* order = order_rows(op.token, op.dy.rows, 1, grid);
  grid.each(op.dy.size(), EmbeddingBackwardBody{op, order, finish});
  if (!finish) return;
  std::int32_t* present = grid.scratch<std::int32_t>(0, vocabulary);
  grid.each(vocabulary, ForgetTokensBody{present});
  grid.each(op.dy.rows, MarkTokensBody{device_pointer<std::int32_t>(op.token), present});
  grid.each(vocabulary * op.dy.cols, EmbeddingRestBody{op, present});
}

}  // namespace lockstep::LOCKSTEP_CUDA_SPACE
