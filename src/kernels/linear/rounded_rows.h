// Rounds rows to E4M3 before a product with a weight (kLowBitRows of numerics/low_bit.h): groups of neighbours along the sum share a power of two as
// scale. The rounded values are kept as fp32, so the product itself is the usual one. Included by .inl files; every function is a template over V.
#pragma once
#include "numerics/low_bit.h"
#include LOCKSTEP_INTEGER_DOT

namespace lockstep {

// Rounds the `n` numbers of one group. On the traced backend the hash of a rounded number is made of its own and of that of the group's largest.
template <class V>
inline void round_group(typename V::Elem* out, const typename V::Elem* x, std::int64_t n, LowBitFormat format) {
  using Elem = typename V::Elem;
  if constexpr (LowBitDecode<V>::kVectors) {
    using Decode = LowBitDecode<V>;
    const auto at = [=](std::int64_t i) { return n - i >= 16 ? V::load(x + i) : V::load_partial(x + i, lanes_left(n, i)); };
    auto magnitudes = Decode::no_magnitudes();
    for (std::int64_t i = 0; i < n; i += 16) magnitudes = Decode::larger(magnitudes, at(i));
    const GroupScale group = low_bit_scale(Decode::magnitude(magnitudes), format);
    const bool numbers = group.scale > 0.0f;
    const V scale = V::set1(group.scale), inverse = V::set1(group.inverse);
    for (std::int64_t i = 0; i < n; i += 16) (numbers ? Decode::nearest(at(i) * inverse) * scale : scale).store_partial(out + i, lanes_left(n, i));
  } else {
    const auto magnitude = [](const Elem& e) { return float_bits(value_of(e)) & 0x7fffffffu; };
    std::int64_t largest = 0;
    for (std::int64_t i = 1; i < n; ++i)
      if (magnitude(x[i]) > magnitude(x[largest])) largest = i;
    const GroupScale group = low_bit_scale(magnitude(x[largest]), format);
    [[maybe_unused]] const Elem of = x[largest];
    for (std::int64_t i = 0; i < n; ++i) {
      const float number = e4m3_of_group(value_of(x[i]), group);
      if constexpr (std::is_same_v<Elem, Traced>) out[i] = {number, operation_hash(Operation::round, x[i].hash, of.hash)};
      else out[i] = number;
    }
  }
}

// Rounds rows [0, rows) of `n` numbers each; `out` is dense.
template <class V>
inline void round_rows_to_e4m3(typename V::Elem* out, const typename V::Elem* x, std::int64_t stride, std::int64_t rows, std::int64_t n, LowBitFormat format) {
  const std::int64_t group = row_group(format);
  for (std::int64_t t = 0; t < rows; ++t)
    for (std::int64_t i = 0; i < n; i += group) round_group<V>(out + t * n + i, x + t * stride + i, std::min(group, n - i), format);
}

// Rows of items: where item g reads row t, `at + t * stride + g * step`.
template <class V>
struct ItemRows {
  const typename V::Elem* at;
  std::int64_t stride, step;
};

// Rows [begin, end) of x for `items` items, of which item g reads `n` numbers from column g * step on: x itself, or where `bits` says so a copy
// rounded into the calling thread's scratch, which does not outlast a part of the kernel (kernels/kernel_parts.h).
template <class V>
inline ItemRows<V> item_rows(const View& x, std::int64_t begin, std::int64_t end, std::int64_t items, std::int64_t step, std::int64_t n, int bits,
                             ThreadPool& pool) {
  using Elem = typename V::Elem;
  const Elem* from = elements<V>(x);
  if (!(bits & kLowBitRows)) return {from, x.stride, step};
  const std::int64_t slices = step > 0 ? items : 1, rows = std::max<std::int64_t>(0, end - begin);
  Elem* out = thread_scratch<Elem, 7>(static_cast<std::size_t>(std::max<std::int64_t>(1, rows * slices * n)));
  constexpr std::int64_t kRows = 8;
  pool.run((rows + kRows - 1) / kRows, [&](std::int64_t block) {
    for (std::int64_t t = block * kRows; t < std::min(rows, block * kRows + kRows); ++t)
      for (std::int64_t g = 0; g < slices; ++g)
        round_rows_to_e4m3<V>(out + (t * slices + g) * n, from + (begin + t) * x.stride + g * step, 0, 1, n, low_bit_format_of(bits));
  });
  return {out - begin * slices * n, slices * n, slices > 1 ? n : 0};
}

}  // namespace lockstep
