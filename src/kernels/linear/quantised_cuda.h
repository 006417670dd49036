// Products with integer weights (linear.h, numerics/quantised.h) as CUDA bodies: rows of x are quantised into scratch once, a group of 16
// threads per group of 32 inputs; then a thread sums one leaf of one output for a few rows, and the leaves of a block are joined.
#pragma once
#include <cstring>

#include "kernels/linear/product_cuda.h"

namespace lockstep::LOCKSTEP_CUDA_SPACE {

// c + the sum of the products of four signed bytes: exact.
LOCKSTEP_DEVICE std::int32_t dot_of_four(std::uint32_t a, std::uint32_t b, std::int32_t c) {
#ifdef __CUDA_ARCH__
  return __dp4a(static_cast<int>(a), static_cast<int>(b), c);
#else
  for (int shift = 0; shift < 32; shift += 8) c += static_cast<std::int8_t>(a >> shift) * static_cast<std::int8_t>(b >> shift);
  return c;
#endif
}

// Rows of x as integers. `slices`: items that read columns of their own quantise these as rows of their own.
struct IntegerRows {
  std::uint32_t* quads;  // [rows * slices, groups, 8]: four integers each
  float* scale;          // [rows * slices, groups]
  std::int32_t* sum;     // [rows * slices, groups], of the integers
  std::int64_t groups, slices;
};

struct QuantiseRowsBody {
  static constexpr bool kCooperates = true;
  static constexpr int kThreads = 128;
  ProductItems op;
  IntegerRows out;
  LOCKSTEP_DEVICE void operator()(const Thread& t) const {
    const std::int64_t at = t.block() * (kThreads / kLanes) + t.group();
    if (at >= op.rows * out.slices * out.groups) return;
    const std::int64_t row = at / out.groups / out.slices, slice = at / out.groups % out.slices, begin = at % out.groups * kQuantisedGroup;
    const float* x = op.x + row * op.x_stride + slice * op.x_step;
    const std::int64_t i = begin + t.lane(), j = i + kLanes;
    const float a = i < op.inputs ? x[i] : 0.0f, b = j < op.inputs ? x[j] : 0.0f;
    // Magnitudes as bits; those of infinity and NaN are above every finite number's.
    const auto larger = [](std::uint32_t p, std::uint32_t q) { return p > q ? p : q; };
    std::uint32_t largest = larger(float_bits(a) & 0x7fffffffu, float_bits(b) & 0x7fffffffu);
    for (int half = 8; half >= 1; half /= 2) largest = larger(largest, t.down(largest, half));
    float scale = bits_float(t.from(largest, 0)) / 127.0f;
    std::int32_t first = 0, second = 0;
    if (scale >= kLeastScale && scale - scale == 0.0f) {
      const float inverse = 1.0f / scale;
      first = static_cast<std::int32_t>(__builtin_nearbyintf(a * inverse));
      second = static_cast<std::int32_t>(__builtin_nearbyintf(b * inverse));
    } else {
      scale = scale < kLeastScale ? 0.0f : scale - scale;  // infinity and NaN alike
    }
    std::int32_t sum = first + second;
    for (int half = 8; half >= 1; half /= 2) sum += t.down(sum, half);
    auto* bytes = reinterpret_cast<std::int8_t*>(out.quads) + at * kQuantisedGroup;
    bytes[t.lane()] = static_cast<std::int8_t>(first);
    bytes[t.lane() + kLanes] = static_cast<std::int8_t>(second);
    if (t.lane() == 0) out.scale[at] = scale, out.sum[at] = sum;
  }
};

template <int kRows>
struct QuantisedProductBody : LeafGroups<kRows> {
  static constexpr bool kCooperates = true;
  using LeafGroups<kRows>::op;
  IntegerRows x;
  const std::uint8_t* data;
  QuantisedShape shape;

  LOCKSTEP_DEVICE void operator()(const Thread& t) const {
    const RowTile tile = this->rows(t);
    if (tile.item < 0) return;
    const std::int64_t leaf_size = op.own_leaves() > 0 ? x.groups / op.leaves : 0, begin = (op.leaf_begin + this->leaf(t)) * leaf_size;
    const std::uint8_t* scales = data + tile.item * shape.bytes() + this->panel(t) * shape.panel_bytes();
    const std::uint8_t* bytes = scales + shape.scale_bytes();
    std::int64_t row[kRows];  // where the groups of this row of integers begin; rows beyond the last are the last again
    float sum[kRows];
    LOCKSTEP_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const std::int64_t of_x = tile.begin + r < tile.end ? tile.begin + r : tile.end - 1;
      row[r] = (of_x * x.slices + (x.slices > 1 ? tile.item : 0)) * x.groups;
      sum[r] = 0.0f;
    }
    for (std::int64_t g = begin; g < begin + leaf_size; ++g) {
      std::int32_t part[kRows];
      LOCKSTEP_UNROLL
      for (int r = 0; r < kRows; ++r) part[r] = shape.bits == 8 ? 0 : -8 * x.sum[row[r] + g];
      const std::uint8_t* group = bytes + g * shape.group_bytes() + t.lane() * 4;
      for (int step = 0; step < shape.bits; ++step) {
        std::uint32_t w;
        memcpy(&w, __builtin_assume_aligned(group + step * 64, 4), 4);
        LOCKSTEP_UNROLL
        for (int r = 0; r < kRows; ++r) {
          const std::uint32_t* quads = x.quads + (row[r] + g) * 8;
          if (shape.bits == 8) {
            part[r] = dot_of_four(w ^ 0x80808080u, quads[step], part[r]);
          } else {  // as stored, the integers are 8 higher
            part[r] = dot_of_four(w & 0x0f0f0f0fu, quads[2 * step], part[r]);
            part[r] = dot_of_four(w >> 4 & 0x0f0f0f0fu, quads[2 * step + 1], part[r]);
          }
        }
      }
      Bf16 scale;
      memcpy(&scale, __builtin_assume_aligned(scales + (g * kLanes + t.lane()) * 2, 2), 2);
      LOCKSTEP_UNROLL
      for (int r = 0; r < kRows; ++r) sum[r] = fused(static_cast<float>(part[r]), x.scale[row[r] + g] * widen(scale), sum[r]);
    }
    this->join(t, tile, sum, t.shared<float>());
  }
};

// As linear.h says for integers: `ends`, the scale and the old contents of y are ignored.
inline void launch_quantised(ProductItems op, const PackedWeight& w, Grid& grid) {
  if (op.rows == 0 || op.count == 0 || op.outputs == 0) return;
  op.ends = nullptr;
  op.scale = 1;
  op.accumulate = false;
  const QuantisedShape shape = w.quantised();
  const std::int64_t slices = op.x_step ? op.count : 1, groups = shape.groups(), all = op.rows * slices * groups;
  const IntegerRows x{grid.scratch<std::uint32_t>(0, all * 8), grid.scratch<float>(1, all), grid.scratch<std::int32_t>(2, all), groups, slices};
  constexpr std::int64_t kGroups = QuantiseRowsBody::kThreads / kLanes;
  grid.run((all + kGroups - 1) / kGroups, QuantiseRowsBody::kThreads, QuantiseRowsBody{op, x});
  const auto* data = device_pointer<std::uint8_t>(w.data);
  const auto run = [&](const auto& body, std::int64_t tile) { grid.run(op.row_tiles(tile) * body.panel_tiles(), body.threads(), body, body.sum_bytes()); };
  const std::int64_t rows = op.offsets ? (op.rows + op.count - 1) / op.count : op.rows;
  if (rows == 1) run(QuantisedProductBody<1>{{op}, x, data, shape}, 1);
  else run(QuantisedProductBody<8>{{op}, x, data, shape}, 8);
}

}  // namespace lockstep::LOCKSTEP_CUDA_SPACE
