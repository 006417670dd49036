// The parameter of a Rice code that adapts to the numbers coded so far. Integers alone, so it is the same on every machine. One thread.
//   RiceMean mean(200); const int k = mean.parameter(); mean.add(137);
#pragma once
#include <bit>
#include <cstdint>

namespace lockstep {

// The mean of the numbers coded so far, recent ones more, which decides the Rice parameter k of the next: the least with 2^k at least half the mean.
class RiceMean {
 public:
  // `expected`: the mean before anything is coded.
  explicit RiceMean(std::uint64_t expected = 0) : sum_(expected < kMost ? expected : kMost) {}
  // The least k with (2 count << k) >= sum.
  int parameter() const {
    const std::uint64_t twice = 2 * count_;
    if (sum_ <= twice) return 0;
    const int k = std::bit_width(sum_ - 1) - std::bit_width(twice);  // it, or one less: a division would take longer
    return k + ((twice << k) < sum_);
  }
  void add(std::uint64_t value) {
    sum_ += value < kMost ? value : kMost;
    if (++count_ == kWindow) {
      sum_ = (sum_ + 1) / 2;
      count_ /= 2;
    }
  }

 private:
  static constexpr std::uint64_t kWindow = 64, kMost = std::uint64_t{1} << 40;
  std::uint64_t sum_, count_ = 1;
};

// A number whose quotient exceeds this is written in full: this many ones, six bits with its length in bits, then its bits.
inline constexpr int kMostQuotient = 24;

}  // namespace lockstep
