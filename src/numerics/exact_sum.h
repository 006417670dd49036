// Sums of host numbers whose bits do not depend on the order of adding (loss normalisers, metrics that influence training): one number of the order-free
// accumulator (numerics/accumulator.h, docs/numerics.md section 2), which says what overflows.
//   ExactSum sum; for (const double x : values) sum.add(x); const double total = sum.total();
#pragma once

namespace lockstep {

// At most so many deposits may come between two carries.
inline constexpr int kDepositsBeforeCarry = 120;

// One number's bins: the splits and carries of numerics/accumulator.h. Static, as kernels include this below their target pragma
// (kernels/folder.cmake).
static inline void deposit_in_bins(double* bin, double rest) {
  const double high = (rest + 0x1.8p+48) - 0x1.8p+48;
  bin[0] += high;
  rest -= high;
  const double middle = (rest + 0x1.8p+2) - 0x1.8p+2;
  bin[1] += middle;
  rest -= middle;
  bin[2] += (rest + 0x1.8p-44) - 0x1.8p-44;
}
static inline void carry_in_bins(double* bin) {
  const double carry1 = __builtin_floor(bin[2] * 0x1p+50) * 0x1p-50;
  bin[2] -= carry1, bin[1] += carry1;
  const double carry0 = __builtin_floor(bin[1] * 0x1p+4) * 0x1p-4;
  bin[1] -= carry0, bin[0] += carry0;
}

class ExactSum {
 public:
  void add(double value) {
    deposit_in_bins(bin_, value);
    if (++deposits_ == kDepositsBeforeCarry) carry();
  }
  double total() {
    carry();
    return (bin_[0] + bin_[1]) + bin_[2];
  }

 private:
  void carry() {
    carry_in_bins(bin_);
    deposits_ = 0;
  }
  double bin_[3] = {0, 0, 0};
  int deposits_ = 0;
};

}  // namespace lockstep
