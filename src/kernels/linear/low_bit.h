// Products with low-bit weights (linear.h, numerics/low_bit.h); rows that the format rounds were rounded before (rounded_rows.h). A few panels at a
// time are decoded into scratch and multiplied by product.h, so a sum has the order, and the bits, of one with the decoded weight. Included by .inl
// files; every function is a template over V.
#pragma once
#include "kernels/linear/product.h"
#include "numerics/low_bit.h"
#include LOCKSTEP_INTEGER_DOT

namespace lockstep {

[[gnu::always_inline]] inline LowBitShape low_bit_shape(const PackedWeight& w) { return {w.outputs, w.inputs, low_bit_format_of(w.bits)}; }

// Lines [k_begin, k_end) of a panel: `lines` [k_end - k_begin][16].
template <class V>
inline void decode_lines(typename V::Elem* lines, const std::uint8_t* panel, const LowBitShape& shape, std::int64_t k_begin, std::int64_t k_end) {
  if constexpr (LowBitDecode<V>::kVectors) {
    using Decode = LowBitDecode<V>;
    const std::uint8_t* values = panel + shape.scale_bytes();
    const std::int64_t step = shape.format == LowBitFormat::fp8 ? kFp8Block : kQuantisedGroup;
    for (std::int64_t k = k_begin; k < k_end;) {
      const std::int64_t g = k / step, end = std::min(k_end, (g + 1) * step);
      if (shape.format == LowBitFormat::int4) {
        const V scale = Decode::halves(panel + g * 32);
        for (; k < end; ++k, lines += 16) (Decode::nibbles(values + k / 8 * 64, static_cast<int>(k % 8 / 4 * 4 + k % 4 * 8)) * scale).store(lines);
        continue;
      }
      if (shape.format == LowBitFormat::mxfp4) {
        const V scale = Decode::exponents(panel + g * 16);
        for (; k < end; ++k, lines += 16) (Decode::e2m1(values + k / 8 * 64, static_cast<int>(k % 8 / 4 * 4 + k % 4 * 8)) * scale).store(lines);
        continue;
      }
      V scale;
      if (shape.groups_of_inputs()) {
        scale = Decode::exponents(panel + g * 16);
      } else {
        float block;
        __builtin_memcpy(&block, panel + g * 4, 4);
        scale = V::set1(block);
      }
      for (; k < end; ++k, lines += 16) (Decode::e4m3(values + k * 16) * scale).store(lines);
    }
  } else {
    for (std::int64_t k = k_begin; k < k_end; ++k)
      for (std::int64_t lane = 0; lane < 16; ++lane) *lines++ = element<typename V::Elem>(low_bit_element(panel, shape, lane, k));
  }
}

// The same for the input gradient: of mxfp8_both the copy whose groups lie along the outputs, of other formats what the forward reads.
template <class V>
inline void decode_lines_across(typename V::Elem* lines, const std::uint8_t* panel, const LowBitShape& shape, std::int64_t k_begin, std::int64_t k_end) {
  if (shape.format != LowBitFormat::mxfp8_both) return decode_lines<V>(lines, panel, shape, k_begin, k_end);
  if constexpr (LowBitDecode<V>::kVectors) {
    const std::uint8_t *scales = panel + shape.across_begin(), *values = scales + shape.across_scale_bytes();
    for (std::int64_t k = k_begin; k < k_end; ++k, lines += 16)
      (LowBitDecode<V>::e4m3(values + k * 16) * V::set1(bits_float(static_cast<std::uint32_t>(scales[k]) << 23))).store(lines);
  } else {
    for (std::int64_t k = k_begin; k < k_end; ++k)
      for (std::int64_t lane = 0; lane < 16; ++lane) *lines++ = element<typename V::Elem>(low_bit_element_across(panel, shape, lane, k));
  }
}

// product_forward with the weight at `w`; op.w is not looked at.
template <class V>
inline void low_bit_forward(const Product<V, typename V::Elem>& op, const std::uint8_t* w, const LowBitShape& shape, std::int64_t rows, int maximum_leaves,
                            int leaf_begin, int leaf_end, std::int64_t panel_begin, std::int64_t panel_end) {
  using Elem = typename V::Elem;
  const std::int64_t panel_size = shape.inputs * 16;
  const std::int64_t group = std::max<std::int64_t>(8, kCachedWeights / (panel_size * static_cast<std::int64_t>(sizeof(Elem))) / 8 * 8);
  Elem* lines = thread_scratch<Elem, 4>(static_cast<std::size_t>(std::min(group, panel_end - panel_begin) * panel_size));
  for (; panel_begin < panel_end; panel_begin += group) {
    const std::int64_t panels = std::min(group, panel_end - panel_begin);
    for (std::int64_t p = 0; p < panels; ++p) decode_lines<V>(lines + p * panel_size, w + (panel_begin + p) * shape.panel_bytes(), shape, 0, shape.inputs);
    Product<V, Elem> part = op;
    part.w = lines;
    part.y += panel_begin * 16;
    part.outputs -= panel_begin * 16;
    product_forward<V, Elem>(part, rows, maximum_leaves, leaf_begin, leaf_end, 0, panels);
  }
}

// transpose_block of product.h.
template <class V>
inline void transpose_low_bit(typename V::Elem* panel, const std::uint8_t* w, const LowBitShape& shape, std::int64_t block) {
  using Elem = typename V::Elem;
  const int width = lanes_left(shape.inputs, block * 16);
  Elem tile[16 * 16];
  for (std::int64_t n = 0; n < shape.outputs; n += 16) {
    decode_lines_across<V>(tile, w + n / 16 * shape.panel_bytes(), shape, block * 16, block * 16 + width);
    const int rows = lanes_left(shape.outputs, n);
    if constexpr (std::is_same_v<Elem, float>)
      if (width == 16 && rows == 16) {
        for (int corner = 0; corner < 4; ++corner)
          transpose_eight(panel + (n + corner / 2 * 8) * 16 + corner % 2 * 8, 16, tile + corner % 2 * 8 * 16 + corner / 2 * 8, 16);
        continue;
      }
    for (int lane = 0; lane < rows; ++lane)
      for (int i = 0; i < 16; ++i) panel[(n + lane) * 16 + i] = i < width ? tile[i * 16 + lane] : element<Elem>(0.0f);
  }
}

// Row `output` of a low-bit table.
template <class V>
inline void low_bit_output(const std::uint8_t* table, const LowBitShape& shape, std::int64_t output, typename V::Elem* y) {
  const std::uint8_t* panel = table + output / 16 * shape.panel_bytes();
  for (std::int64_t k = 0; k < shape.inputs; ++k) y[k] = element<typename V::Elem>(low_bit_element(panel, shape, output % 16, k));
}

}  // namespace lockstep
