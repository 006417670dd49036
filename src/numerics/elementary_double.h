// Elementary functions in double, for tables and schedules computed on the host, so that no libm decides a bit. Error about 1e-15 relative; |x| of
// sine and cosine up to 2^30.
//   const double y = exp_double(1.0); const double x = log_double(y);
#pragma once
#include <cstdint>
#include <cstring>

namespace lockstep {

inline double log_double(double x) {  // x > 0 and normal
  std::uint64_t u;
  std::memcpy(&u, &x, 8);
  std::int64_t e = static_cast<std::int64_t>(u >> 52) - 1022;
  u = (u & 0x000fffffffffffffull) | 0x3fe0000000000000ull;
  double m;
  std::memcpy(&m, &u, 8);
  if (m < 0.70710678118654752440) m += m, --e;
  // log m = 2 atanh(s), s = (m - 1) / (m + 1), |s| < 0.172
  const double s = (m - 1.0) / (m + 1.0), z = s * s;
  double p = 1.0 / 23.0;
  for (int n = 21; n >= 1; n -= 2) p = p * z + 1.0 / n;
  return e * 0.693147180369123816490 + (2.0 * s * p + e * 1.90821492927058770002e-10);
}

inline double exp_double(double x) {
  if (x < -745.0) return 0.0;
  if (x > 709.0) x = 709.0;
  const double n = __builtin_floor(x * 1.44269504088896340736 + 0.5);
  const double r = (x - n * 0.693147180369123816490) - n * 1.90821492927058770002e-10;
  double p = 1.0;
  for (int i = 16; i >= 1; --i) p = 1.0 + p * r / i;
  double scale = 1.0, base = n < 0 ? 0.5 : 2.0;
  for (std::int64_t k = static_cast<std::int64_t>(n < 0 ? -n : n); k > 0; k >>= 1, base *= base)
    if (k & 1) scale *= base;
  return p * scale;
}

inline double power_double(double base, double exponent) { return exp_double(exponent * log_double(base)); }

// sine and cosine of x.
inline void sin_cos_double(double x, double& sine, double& cosine) {
  const double n = __builtin_floor(x * 0.63661977236758134308 + 0.5);
  // pi/2 in three parts of 33 bits
  const double r = ((x - n * 1.57079632673412561417) - n * 6.07710050630396597660e-11) - n * 2.02226624879595063154e-21;
  const double z = r * r;
  double s = 1.0, c = 1.0;
  for (int k = 18; k >= 2; k -= 2) {
    s = 1.0 - s * z / (k * (k + 1.0));
    c = 1.0 - c * z / (k * (k - 1.0));
  }
  s *= r;
  const int quadrant = static_cast<int>(static_cast<std::int64_t>(n) & 3);
  sine = quadrant == 0 ? s : quadrant == 1 ? c : quadrant == 2 ? -s : -c;
  cosine = quadrant == 0 ? c : quadrant == 1 ? -s : quadrant == 2 ? -c : s;
}

}  // namespace lockstep
