// The order-free accumulator: sums whose bits do not depend on the order of adding (docs/numerics.md section 2).
//   AccumulatorVec<V> bins = ...::zero(); bins.deposit(x); ... bins.normalise(); V total = bins.total();
// Three double bins have quanta 2^-4, 2^-50 and 2^-96. A deposit is split exactly into multiples of the quanta, and a bin adds those exactly.
// What is below 2^-97 is rounded off per deposit, from the deposit alone. Overflow gives NaN, and the step is refused: a
// deposit of 2^41 or more, a running sum of 2^47 or more when it is carried, a total of 2^44 or more.
// At most kDepositsBeforeCarry deposits may come between two calls of normalise(). Normalised bins may be added bin by bin
// (and normalised again): that sum is exact too.
#pragma once
#include "numerics/element.h"
#include "numerics/exact_sum.h"
#include "numerics/isa/traced.h"

namespace lockstep {

// The accumulator of sixteen lanes; memory form: 48 doubles (bin 0 of the lanes, then bin 1, then bin 2).
template <class V>
struct AccumulatorVec {
  using Storage = double;
  static constexpr int kStorage = 48;  // elements of Storage per 16 lanes
  typename V::Double bin0, bin1, bin2;

  LOCKSTEP_EVERYWHERE static AccumulatorVec zero() {
    const auto z = V::Double::set1(0.0);
    return {z, z, z};
  }
  LOCKSTEP_EVERYWHERE static AccumulatorVec load(const double* p) { return {V::Double::load(p), V::Double::load(p + 16), V::Double::load(p + 32)}; }
  LOCKSTEP_EVERYWHERE void store(double* p) const { bin0.store(p), bin1.store(p + 16), bin2.store(p + 32); }

  // The guards add +-0 to what is small enough and NaN (infinity * 0) to what is not.
  LOCKSTEP_EVERYWHERE void deposit(const V& x) { deposit_small(to_double(fma(x * V::set1(0x1p+87f), V::zero(), x))); }
  LOCKSTEP_EVERYWHERE void deposit(const typename V::Double& x) { deposit_small(x + (x * V::Double::set1(0x1p+983)) * V::Double::set1(0.0)); }
  // Carries upward; afterwards bin1 is in [0, 2^-4) and bin2 in [0, 2^-50): one form per value.
  LOCKSTEP_EVERYWHERE void normalise() {
    const auto scale1 = V::Double::set1(0x1p+50), quantum1 = V::Double::set1(0x1p-50);
    const auto scale0 = V::Double::set1(0x1p+4), quantum0 = V::Double::set1(0x1p-4);
    const auto carry1 = floor(bin2 * scale1) * quantum1;
    bin2 = bin2 - carry1;
    bin1 = bin1 + carry1;
    const auto carry0 = floor(bin1 * scale0) * quantum0;
    bin1 = bin1 - carry0;
    bin0 = bin0 + carry0;
    bin0 = bin0 + (bin0 * V::Double::set1(0x1p+977)) * V::Double::set1(0.0);
  }
  // The sum as fp32; call after normalise(). The upper bins first: where they cancel (a small negative sum is -2^-4 plus
  // nearly 2^-4) their sum is exact.
  LOCKSTEP_EVERYWHERE V total() const { return to_float(((bin0 + bin1) + bin2) + (bin0 * V::Double::set1(0x1p+980)) * V::Double::set1(0.0)); }

 private:
  LOCKSTEP_EVERYWHERE void deposit_small(typename V::Double rest) {
    const auto magic0 = V::Double::set1(0x1.8p+48), magic1 = V::Double::set1(0x1.8p+2), magic2 = V::Double::set1(0x1.8p-44);
    const auto high = (rest + magic0) - magic0;
    bin0 = bin0 + high;
    rest = rest - high;
    const auto middle = (rest + magic1) - magic1;
    bin1 = bin1 + middle;
    rest = rest - middle;
    bin2 = bin2 + ((rest + magic2) - magic2);
  }
};

// The same values over TracedBin; deposits hash as a wrapping sum.
template <class Tiles>
struct AccumulatorVec<TracedVec<Tiles>> {
  using V = TracedVec<Tiles>;
  using Storage = TracedBin;
  static constexpr int kStorage = 16;
  TracedBin lane[16];

  static AccumulatorVec zero() { return {}; }
  static AccumulatorVec load(const TracedBin* p) {
    AccumulatorVec r;
    for (int i = 0; i < 16; ++i) r.lane[i] = p[i];
    return r;
  }
  void store(TracedBin* p) const {
    for (int i = 0; i < 16; ++i) p[i] = lane[i];
  }
  void deposit(const V& x) {
    for (int i = 0; i < 16; ++i) deposit_lane(i, x.lane[i].value, x.lane[i]);
  }
  // Deposits `value`, made from x, in one lane.
  void deposit_lane(int i, double value, const Traced& x) {
    deposit_in_bins(lane[i].bin, value + (value * 0x1p+983) * 0.0);
    // A chain that is +0 because it has no terms must not show whether it was deposited: the hash of +0 counts nothing.
    if (float_bits(x.value) != 0) lane[i].hash += operation_hash(Operation::deposit, x.hash);
  }
  void normalise() {
    for (TracedBin& l : lane) {
      carry_in_bins(l.bin);
      l.bin[0] += (l.bin[0] * 0x1p+977) * 0.0;
    }
  }
  V total() const {
    return V::map([&](int i) {
      const double* bin = lane[i].bin;
      return Traced{static_cast<float>(((bin[0] + bin[1]) + bin[2]) + (bin[0] * 0x1p+980) * 0.0), mix_hash(lane[i].hash, 0)};
    });
  }
};

}  // namespace lockstep
