#include "rl/kl.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace lockstep {

void KlSums::add(float log_pi, float log_mu, double clip_low, double clip_high) {
  const double l = static_cast<double>(log_pi) - static_cast<double>(log_mu);
  const double ratio_minus_one = std::expm1(l);
  ++tokens;
  different_bits += std::bit_cast<std::uint32_t>(log_pi) != std::bit_cast<std::uint32_t>(log_mu);
  clipped += ratio_minus_one < -clip_low || ratio_minus_one > clip_high;
  sum1 -= l;
  sum2 += 0.5 * l * l;
  sum3 += ratio_minus_one - l;
  largest = std::max(largest, std::abs(l));
}

void KlSums::add(const KlSums& other) {
  tokens += other.tokens;
  clipped += other.clipped;
  different_bits += other.different_bits;
  sum1 += other.sum1;
  sum2 += other.sum2;
  sum3 += other.sum3;
  largest = std::max(largest, other.largest);
}

}  // namespace lockstep
