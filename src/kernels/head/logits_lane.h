// The head's products with its weight (orders: linear.h), a thread an output of a few rows: of CUDA kernels of head/ alone.
//   logits   y[i, n] = chain(G(K)) over k of x[i, k] W[first + n, k]        hidden  dx[t, k] = chain(G(V)) over v of dz[t, v] W[v, k]
// A weight is numbers (fp32, bf16), numbers packed into few bits (numerics/packed.h) or integers (numerics/quantised.h, logits alone).
// Names begin with the head's, since they stand beside those of linear.cu.
#pragma once
#include "kernels/cuda/prelude.h"
#include "numerics/packed.h"

namespace lockstep::LOCKSTEP_CUDA_SPACE {

// A weight in panels, read by element.
template <class Stored>
struct HeadStoredWeight {
  const Stored* data;
  std::int64_t inputs;
  LOCKSTEP_DEVICE float at(std::int64_t output, std::int64_t k) const { return widen_element(data[(output / 16 * inputs + k) * 16 + output % 16]); }
};
struct HeadDecodedWeight {
  const std::uint8_t* data;
  PackedShape shape;
  LOCKSTEP_DEVICE float at(std::int64_t output, std::int64_t k) const { return packed_element(data + output / 16 * shape.panel_bytes(), shape, output % 16, k); }
};
template <class F>
void with_head_weight(const PackedWeight& w, const F& f) {
  if (is_packed_format(w.bits)) f(HeadDecodedWeight{device_pointer<std::uint8_t>(w.data), {w.outputs, w.inputs, static_cast<PackedFormat>(w.bits)}});
  else if (w.data.dtype == DType::bf16) f(HeadStoredWeight<Bf16>{device_pointer<Bf16>(w.data), w.inputs});
  else f(HeadStoredWeight<float>{device_pointer<float>(w.data), w.inputs});
}

// The rows of a product: those of x, or of `index` where it is given, each perhaps rounded to bf16.
struct HeadProductRows {
  View x, index;
  bool round = false;
  std::int64_t count() const { return index ? index.rows : x.rows; }
  LOCKSTEP_DEVICE const float* row(std::int64_t i) const { return floats(x) + (index ? integers(index)[i * index.stride] : i) * x.stride; }
  LOCKSTEP_DEVICE float value(const float* row, std::int64_t k) const { return round ? widen(round_to_bf16(row[k])) : row[k]; }
};

inline constexpr int kHeadRows = 4;    // of a thread: a weight is read once for all of them
inline constexpr int kHeadLeaves = 16;  // at most

// Sums of kHeadRows rows at once, value(r, k) * weight(k) over n terms in `leaves` leaves, each one ascending chain; joined pairwise.
template <class Value, class WeightAt>
LOCKSTEP_DEVICE void head_chains(std::int64_t n, int leaves, const Value& value, const WeightAt& weight_at, float (&total)[kHeadRows]) {
  float part[kHeadRows][kHeadLeaves];
  const std::int64_t size = n / leaves;
  for (int leaf = 0; leaf < leaves; ++leaf) {
    float sum[kHeadRows] = {};
    for (std::int64_t k = leaf * size; k < (leaf + 1) * size; ++k) {
      const float weight = weight_at(k);
      for (int r = 0; r < kHeadRows; ++r) sum[r] = fused(value(r, k), weight, sum[r]);
    }
    for (int r = 0; r < kHeadRows; ++r) part[r][leaf] = sum[r];
  }
  for (int r = 0; r < kHeadRows; ++r) total[r] = join_pairwise(part[r], leaves);
}

// Item: outputs inner, blocks of kHeadRows rows outer. A row beyond the last is the last again.
template <class Weight>
struct HeadLogitsBody {
  Weight weight;
  View y;
  HeadProductRows rows;
  std::int64_t count, inputs, first, outputs;  // outputs [first, first + outputs) of the weight
  int leaves;
  LOCKSTEP_DEVICE void operator()(std::int64_t item) const {
    const std::int64_t n = item % outputs, begin = item / outputs * kHeadRows;
    const float* x[kHeadRows];
    for (int r = 0; r < kHeadRows; ++r) x[r] = rows.row(begin + r < count ? begin + r : count - 1);
    float sum[kHeadRows];
    head_chains(inputs, leaves, [&](int r, std::int64_t k) { return rows.value(x[r], k); }, [&](std::int64_t k) { return weight.at(first + n, k); }, sum);
    for (int r = 0; r < kHeadRows && begin + r < count; ++r) floats(y)[(begin + r) * y.stride + n] = sum[r];
  }
};

template <class Weight>
struct HeadHiddenBody {
  Weight weight;
  View dx, dz;
  std::int64_t inputs, outputs;
  int leaves;
  LOCKSTEP_DEVICE void operator()(std::int64_t item) const {
    const std::int64_t k = item % inputs, begin = item / inputs * kHeadRows, count = dz.rows;
    const float* d[kHeadRows];
    for (int r = 0; r < kHeadRows; ++r) d[r] = floats(dz) + (begin + r < count ? begin + r : count - 1) * dz.stride;
    float sum[kHeadRows];
    head_chains(outputs, leaves, [&](int r, std::int64_t v) { return d[r][v]; }, [&](std::int64_t v) { return weight.at(v, k); }, sum);
    for (int r = 0; r < kHeadRows && begin + r < count; ++r) floats(dx)[(begin + r) * dx.stride + k] = sum[r];
  }
};

// Rows of x as integers, for weights of integers: a thread a group of 32 (linear.h has the rule).
struct HeadIntegerRows {
  std::int8_t* q;  // [rows, groups * 32]
  float* scale;    // [rows, groups]
};
struct QuantiseHeadRowsBody {
  HeadProductRows rows;
  HeadIntegerRows out;
  std::int64_t groups, inputs;
  LOCKSTEP_DEVICE void operator()(std::int64_t item) const {
    const std::int64_t begin = item % groups * kQuantisedGroup, n = inputs - begin < kQuantisedGroup ? inputs - begin : kQuantisedGroup;
    const float* x = rows.row(item / groups) + begin;
    std::int8_t* q = out.q + item * kQuantisedGroup;
    std::uint32_t largest = 0;  // of magnitudes as bits: infinity and NaN are above every number
    for (std::int64_t i = 0; i < n; ++i) {
      const std::uint32_t magnitude = float_bits(x[i]) & 0x7fffffffu;
      largest = largest > magnitude ? largest : magnitude;
    }
    float scale = bits_float(largest) / 127.0f;
    const bool whole = scale >= kLeastScale && scale - scale == 0.0f;
    const float inverse = 1.0f / scale;
    for (std::int64_t i = 0; i < kQuantisedGroup; ++i) q[i] = whole && i < n ? static_cast<std::int8_t>(__builtin_nearbyintf(x[i] * inverse)) : std::int8_t{0};
    if (!whole) scale = scale < kLeastScale ? 0.0f : scale - scale;
    out.scale[item] = scale;
  }
};
struct HeadIntegerLogitsBody {
  const std::uint8_t* weight;
  QuantisedShape shape;
  View y;
  HeadIntegerRows x;
  std::int64_t groups;
  int leaves;
  LOCKSTEP_DEVICE void operator()(std::int64_t item) const {
    const std::int64_t n = item % shape.outputs, row = item / shape.outputs, lane = n % 16, size = groups / leaves;
    const std::uint8_t* scales = weight + n / 16 * shape.panel_bytes();
    const std::uint8_t* bytes = scales + shape.scale_bytes();
    float part[kHeadLeaves];
    for (int leaf = 0; leaf < leaves; ++leaf) {
      float sum = 0.0f;
      for (std::int64_t g = leaf * size; g < (leaf + 1) * size; ++g) {
        const std::int8_t* q = x.q + (row * groups + g) * kQuantisedGroup;
        std::int32_t exact = 0;
        for (std::int64_t i = 0; i < kQuantisedGroup; ++i) exact += q[i] * quantised_integer(bytes, shape.bits, lane, g * kQuantisedGroup + i);
        const float scale = widen(Bf16{static_cast<std::uint16_t>(scales[(g * 16 + lane) * 2] | scales[(g * 16 + lane) * 2 + 1] << 8)});
        sum = fused(static_cast<float>(exact), x.scale[row * groups + g] * scale, sum);
      }
      part[leaf] = sum;
    }
    floats(y)[row * y.stride + n] = join_pairwise(part, leaves);
  }
};

// Outputs [first, first + outputs) of some rows; a weight of numbers.
inline void launch_some_logits(const View& y, const HeadProductRows& rows, const PackedWeight& w, std::int64_t first, std::int64_t outputs, Grid& grid) {
  const std::int64_t count = rows.count();
  with_head_weight(w, [&](const auto& weight) {
    grid.each((count + kHeadRows - 1) / kHeadRows * outputs,
              HeadLogitsBody<std::decay_t<decltype(weight)>>{weight, y, rows, count, w.inputs, first, outputs, leaf_count(w.inputs, w.maximum_leaves)});
  });
}
// All outputs. Uses scratch 0 and 1 where weights are integers.
inline void launch_logits(const View& y, const HeadProductRows& rows, const PackedWeight& w, Grid& grid) {
  const std::int64_t count = rows.count();
  if (w.bits != 0 && !is_packed_format(w.bits)) {
    const QuantisedShape shape = w.quantised();
    const std::int64_t groups = shape.groups();
    const HeadIntegerRows x{grid.scratch<std::int8_t>(0, count * groups * kQuantisedGroup), grid.scratch<float>(1, count * groups)};
    grid.each(count * groups, QuantiseHeadRowsBody{{rows.x, rows.index}, x, groups, w.inputs});
    return grid.each(count * w.outputs, HeadIntegerLogitsBody{device_pointer<std::uint8_t>(w.data), shape, y, x, groups, quantised_leaf_count(w.inputs, w.maximum_leaves)});
  }
  launch_some_logits(y, rows, w, 0, w.outputs, grid);
}
inline void launch_hidden(const View& dx, const View& dz, const PackedWeight& w, Grid& grid) {
  with_head_weight(w, [&](const auto& weight) {
    grid.each((dz.rows + kHeadRows - 1) / kHeadRows * w.inputs,
              HeadHiddenBody<std::decay_t<decltype(weight)>>{weight, dx, dz, w.inputs, w.outputs, leaf_count(w.outputs, w.maximum_leaves)});
  });
}

}  // namespace lockstep::LOCKSTEP_CUDA_SPACE
