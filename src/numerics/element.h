// The element types of kernels, and scalar arithmetic on them, so that a kernel template written over V::Elem runs on every backend.
//   float / Bf16       the real backends: fp32, and bf16 as its 16 bits
//   Traced             the traced backend: a value and the hash of the expression that made it
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>

#include "base/device_code.h"

namespace lockstep {

LOCKSTEP_EVERYWHERE inline std::uint32_t float_bits(float x) {
  std::uint32_t u;
  std::memcpy(&u, &x, 4);
  return u;
}
LOCKSTEP_EVERYWHERE inline float bits_float(std::uint32_t u) {
  float x;
  std::memcpy(&x, &u, 4);
  return x;
}

// bfloat16: the upper half of an fp32. Rounding is to nearest even; a NaN stays a NaN (quiet, sign kept).
struct Bf16 {
  std::uint16_t bits;
};
LOCKSTEP_EVERYWHERE inline Bf16 round_to_bf16(float x) {
  const std::uint32_t u = float_bits(x);
  if ((u & 0x7fffffffu) > 0x7f800000u) return {static_cast<std::uint16_t>((u >> 16) | 0x40u)};
  return {static_cast<std::uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16)};
}
LOCKSTEP_EVERYWHERE inline float widen(Bf16 h) { return bits_float(static_cast<std::uint32_t>(h.bits) << 16); }

// The operations that a traced hash distinguishes. The numbers are part of published hashes: append only.
enum class Operation : std::uint64_t { constant = 1, add, sub, mul, div, fma, sqrt, round, pow2, exponent, mantissa, to_bf16, deposit, integer_sum };

struct Traced {
  float value = 0;
  std::uint64_t hash = 0;
};

LOCKSTEP_EVERYWHERE inline std::uint64_t mix_hash(std::uint64_t h, std::uint64_t x) {
  h ^= x + 0x9e3779b97f4a7c15ull + (h << 6) + (h >> 2);
  h *= 0xff51afd7ed558ccdull;
  return h ^ (h >> 33);
}
LOCKSTEP_EVERYWHERE inline std::uint64_t operation_hash(Operation op, std::uint64_t a, std::uint64_t b = 0, std::uint64_t c = 0) {
  return mix_hash(mix_hash(mix_hash(static_cast<std::uint64_t>(op), a), b), c);
}
// An input (weight, constant, table): its hash is that of its bits.
LOCKSTEP_EVERYWHERE inline Traced traced_constant(float x) { return {x, operation_hash(Operation::constant, float_bits(x))}; }

inline Traced operator+(Traced a, Traced b) { return {a.value + b.value, operation_hash(Operation::add, a.hash, b.hash)}; }
inline Traced operator-(Traced a, Traced b) { return {a.value - b.value, operation_hash(Operation::sub, a.hash, b.hash)}; }
inline Traced operator*(Traced a, Traced b) { return {a.value * b.value, operation_hash(Operation::mul, a.hash, b.hash)}; }
inline Traced operator/(Traced a, Traced b) { return {a.value / b.value, operation_hash(Operation::div, a.hash, b.hash)}; }
inline bool operator>(Traced a, Traced b) { return a.value > b.value; }
inline bool operator<(Traced a, Traced b) { return a.value < b.value; }

LOCKSTEP_EVERYWHERE inline float fused(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline Traced fused(Traced a, Traced b, Traced c) {
  return {__builtin_fmaf(a.value, b.value, c.value), operation_hash(Operation::fma, a.hash, b.hash, c.hash)};
}
LOCKSTEP_EVERYWHERE inline float square_root(float a) { return __builtin_sqrtf(a); }
inline Traced square_root(Traced a) { return {__builtin_sqrtf(a.value), operation_hash(Operation::sqrt, a.hash)}; }
LOCKSTEP_EVERYWHERE inline float value_of(float a) { return a; }
inline float value_of(Traced a) { return a.value; }
// Exact widening of a stored compute-copy element; traced buffers hold the already rounded value.
LOCKSTEP_EVERYWHERE inline float widen_element(float a) { return a; }
LOCKSTEP_EVERYWHERE inline float widen_element(Bf16 a) { return widen(a); }
inline Traced widen_element(Traced a) { return a; }

// A literal as an element: element<E>(1.0f).
template <class E>
LOCKSTEP_EVERYWHERE inline E element(float x);
template <>
LOCKSTEP_EVERYWHERE inline float element<float>(float x) {
  return x;
}
template <>
inline Traced element<Traced>(float x) {
  return traced_constant(x);
}

// Rounds to the storage type S of a bf16 buffer: Bf16, or Traced (a unary node).
template <class S, class E>
LOCKSTEP_EVERYWHERE inline S store_bf16(E x);
template <>
LOCKSTEP_EVERYWHERE inline Bf16 store_bf16<Bf16, float>(float x) {
  return round_to_bf16(x);
}
template <>
inline Traced store_bf16<Traced, Traced>(Traced x) {
  return {widen(round_to_bf16(x.value)), operation_hash(Operation::to_bf16, x.hash)};
}

}  // namespace lockstep
