// One lane of an f32x16 with the operations of the vector: what a GPU thread computes with. Templates over V that treat lanes
// alike (elementary.h, accumulator.h, the losses) are instantiated for it, so that a formula is written once for CPUs and GPUs.
// Every operation is the IEEE one, rounded once: GPU code is compiled without contraction, flushing or fast division.
#pragma once
#include "numerics/element.h"

namespace lockstep {

struct LaneDouble {
  double x;
  LOCKSTEP_EVERYWHERE static LaneDouble set1(double x) { return {x}; }
  LOCKSTEP_EVERYWHERE static LaneDouble load(const double* p) { return {*p}; }
  LOCKSTEP_EVERYWHERE void store(double* p) const { *p = x; }
};
LOCKSTEP_EVERYWHERE inline LaneDouble operator+(LaneDouble a, LaneDouble b) { return {a.x + b.x}; }
LOCKSTEP_EVERYWHERE inline LaneDouble operator-(LaneDouble a, LaneDouble b) { return {a.x - b.x}; }
LOCKSTEP_EVERYWHERE inline LaneDouble operator*(LaneDouble a, LaneDouble b) { return {a.x * b.x}; }
LOCKSTEP_EVERYWHERE inline LaneDouble floor(LaneDouble a) { return {__builtin_floor(a.x)}; }

struct Lane {
  using Elem = float;
  using Half = Bf16;
  using Double = LaneDouble;
  float x;

  LOCKSTEP_EVERYWHERE static Lane set1(float x) { return {x}; }
  LOCKSTEP_EVERYWHERE static Lane zero() { return {0.0f}; }
  LOCKSTEP_EVERYWHERE static Lane load(const float* p) { return {*p}; }
  LOCKSTEP_EVERYWHERE static Lane load(const Bf16* p) { return {widen(*p)}; }
  LOCKSTEP_EVERYWHERE void store(float* p) const { *p = x; }
  LOCKSTEP_EVERYWHERE void store_partial(float* p, int) const { *p = x; }
  LOCKSTEP_EVERYWHERE float extract(int) const { return x; }
};
LOCKSTEP_EVERYWHERE inline Lane operator+(Lane a, Lane b) { return {a.x + b.x}; }
LOCKSTEP_EVERYWHERE inline Lane operator-(Lane a, Lane b) { return {a.x - b.x}; }
LOCKSTEP_EVERYWHERE inline Lane operator*(Lane a, Lane b) { return {a.x * b.x}; }
LOCKSTEP_EVERYWHERE inline Lane operator/(Lane a, Lane b) { return {a.x / b.x}; }
LOCKSTEP_EVERYWHERE inline Lane fma(Lane a, Lane b, Lane c) { return {fused(a.x, b.x, c.x)}; }
LOCKSTEP_EVERYWHERE inline Lane max(Lane a, Lane b) { return {a.x > b.x ? a.x : b.x}; }
LOCKSTEP_EVERYWHERE inline Lane min(Lane a, Lane b) { return {a.x < b.x ? a.x : b.x}; }
LOCKSTEP_EVERYWHERE inline Lane sqrt(Lane a) { return {square_root(a.x)}; }
LOCKSTEP_EVERYWHERE inline Lane select_gt(Lane a, Lane b, Lane x, Lane y) { return {a.x > b.x ? x.x : y.x}; }
LOCKSTEP_EVERYWHERE inline Lane round_nearest(Lane a) { return {__builtin_nearbyintf(a.x)}; }
LOCKSTEP_EVERYWHERE inline Lane pow2(Lane n) { return {bits_float(static_cast<std::uint32_t>(static_cast<std::int32_t>(n.x) + 127) << 23)}; }
LOCKSTEP_EVERYWHERE inline Lane exponent_of(Lane a) { return {static_cast<float>(static_cast<std::int32_t>((float_bits(a.x) >> 23) & 0xff) - 126)}; }
LOCKSTEP_EVERYWHERE inline Lane mantissa_of(Lane a) { return {bits_float((float_bits(a.x) & 0x007fffffu) | 0x3f000000u)}; }
LOCKSTEP_EVERYWHERE inline LaneDouble to_double(Lane a) { return {a.x}; }
LOCKSTEP_EVERYWHERE inline Lane to_float(LaneDouble a) { return {static_cast<float>(a.x)}; }

}  // namespace lockstep
