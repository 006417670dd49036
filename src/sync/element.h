// An element of a tensor as the codecs see it: a word of 1, 2 or 4 bytes with a class (its exponent) and a rank in the order of its type's values.
// The difference of two ranks is a step in ulps (units in the last place). Every word has a rank, NaN and -0 too, and the way back gives the same
// bits. Pure functions.
//   const ElementKind kind = element_kind(SafetensorsType::bf16);  kind.exponent(word);  order_of(kind, word);
#pragma once
#include <cstdint>

#include "checkpoint/tensor_file.h"

namespace lockstep {

struct ElementKind {
  int width = 0;           // bytes; 0: such tensors are not coded against another
  bool floating = false;   // sign and magnitude; otherwise an integer
  int exponent_shift = 0;  // of a floating one
  int exponents = 1;       // number of possible exponents
  int exponent(std::uint32_t word) const { return floating ? static_cast<int>(word >> exponent_shift) & (exponents - 1) : 0; }
};

inline ElementKind element_kind(SafetensorsType type) {
  switch (type) {
    case SafetensorsType::bf16:
      return {2, true, 7, 256};
    case SafetensorsType::f16:
      return {2, true, 10, 32};
    case SafetensorsType::f32:
      return {4, true, 23, 256};
    case SafetensorsType::f8_e4m3:
      return {1, true, 3, 16};
    case SafetensorsType::f8_e5m2:
      return {1, true, 2, 32};
    default: {
      const std::int64_t bytes = safetensors_type_bytes(type);
      return {bytes <= 4 ? static_cast<int>(bytes) : 0};
    }
  }
}

// The rank of a word among all words of its type, below 2^(8 width): of floating-point types ascending from -NaN over -0, +0 to NaN. word_at inverts
// it.
inline std::uint32_t order_of(const ElementKind& kind, std::uint32_t word) {
  if (!kind.floating) return word;
  const int bits = 8 * kind.width;
  const std::uint32_t sign = std::uint32_t{1} << (bits - 1), all = sign | (sign - 1);
  return word & sign ? ~word & all : word | sign;
}
inline std::uint32_t word_at(const ElementKind& kind, std::uint32_t place) {
  if (!kind.floating) return place;
  const int bits = 8 * kind.width;
  const std::uint32_t sign = std::uint32_t{1} << (bits - 1), all = sign | (sign - 1);
  return place & sign ? place ^ sign : ~place & all;
}

// The step from one rank to another, modulo 2^(8 width), nearest to 0.
inline std::int32_t step_between(const ElementKind& kind, std::uint32_t from, std::uint32_t to) {
  const int unused = 32 - 8 * kind.width;
  return static_cast<std::int32_t>((to - from) << unused) >> unused;
}
inline std::uint32_t step_from(const ElementKind& kind, std::uint32_t from, std::uint32_t step) {
  return (from + step) & (0xffffffffu >> (32 - 8 * kind.width));
}

}  // namespace lockstep
