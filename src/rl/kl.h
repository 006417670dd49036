// The divergence between sampler and training forward over the sampled tokens (docs/numerics.md section 6):
// l = log pi - log mu, where mu is the sampling log-probability and pi the training forward under the same weights version;
// k1 = mean(-l), k2 = mean(l^2 / 2), k3 = mean(e^l - 1 - l); clipped: e^l outside [1 - clip_low, 1 + clip_high]; and the count of
// tokens whose two numbers differ in any bit. Reported only; training does not use it. Plain values.
//   KlSums kl; kl.add(pi, mu, 0.2, 0.28); print(kl.k3(), kl.different_bits);
#pragma once
#include <cstdint>

namespace lockstep {

struct KlSums {
  std::int64_t tokens = 0, clipped = 0, different_bits = 0;
  double sum1 = 0, sum2 = 0, sum3 = 0;
  double largest = 0;  // |l|

  void add(float log_pi, float log_mu, double clip_low, double clip_high);
  void add(const KlSums& other);
  // Means over the tokens; 0 without any.
  double k1() const { return mean(sum1); }
  double k2() const { return mean(sum2); }
  double k3() const { return mean(sum3); }
  double clipped_share() const { return mean(static_cast<double>(clipped)); }

 private:
  double mean(double sum) const { return tokens > 0 ? sum / static_cast<double>(tokens) : 0.0; }
};

}  // namespace lockstep
