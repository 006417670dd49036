// Elementary functions of traced losses, in double, with their limits at the ends of the range. Our own, so that no libm decides a bit of a gradient.
// Errors of a few units in the last place.
//   const double y = graph_math::logarithm_of_1_plus(1e-12);
#pragma once
#include <cmath>
#include <limits>

#include "numerics/elementary_double.h"

namespace lockstep::graph_math {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();
inline constexpr double kNotANumber = std::numeric_limits<double>::quiet_NaN();

inline double exponential(double x) {
  if (std::isnan(x)) return x;
  if (x > 709.78) return kInfinity;
  if (x > 708.0) return exp_double(x - 1.0) * 2.71828182845904523536;
  return exp_double(x);
}

inline double logarithm(double x) {
  if (std::isnan(x) || x < 0) return kNotANumber;
  if (x == 0) return -kInfinity;
  if (x == kInfinity) return x;
  if (x < std::numeric_limits<double>::min()) return log_double(x * 18014398509481984.0) - 54.0 * 0.69314718055994530942;
  return log_double(x);
}

inline double logarithm_of_1_plus(double x) {
  if (std::isnan(x) || x == kInfinity || x < -0.5) return logarithm(1.0 + x);
  const double u = 1.0 + x;
  return u == 1.0 ? x : logarithm(u) * (x / (u - 1.0));
}

inline double exponential_minus_1(double x) {
  if (std::fabs(x) < 1e-5) return x + x * x * (0.5 + x / 6.0);
  const double u = exponential(x);
  if (std::fabs(x) > 0.5 || std::isnan(x)) return u - 1.0;
  return (u - 1.0) * (x / logarithm(u));
}

inline double sigmoid(double x) {
  if (x >= 0) return 1.0 / (1.0 + exponential(-x));
  const double e = exponential(x);
  return e / (1.0 + e);
}

inline double softplus(double x) { return std::isnan(x) ? x : (x > 0 ? x : 0.0) + logarithm_of_1_plus(exponential(-std::fabs(x))); }

inline double hyperbolic_tangent(double x) {
  if (std::isnan(x)) return x;
  const double t = exponential_minus_1(2.0 * std::fabs(x)), y = t > 1e17 ? 1.0 : t / (t + 2.0);
  return x < 0 ? -y : y;
}

inline double power(double x, double y) {
  if (y == 0 || x == 1) return 1.0;
  if (std::isnan(x) || std::isnan(y)) return kNotANumber;
  const bool whole = y == std::floor(y);
  if (whole && std::fabs(y) <= 1024) {
    double result = 1.0, base = x;
    for (auto n = static_cast<std::int64_t>(std::fabs(y)); n > 0; n >>= 1, base *= base)
      if (n & 1) result *= base;
    return y < 0 ? 1.0 / result : result;
  }
  if (y == 0.5) return std::sqrt(x);
  if (x < 0 && !whole) return kNotANumber;
  const double size = x == 0 ? (y > 0 ? 0.0 : kInfinity) : exponential(y * logarithm(std::fabs(x)));
  return x < 0 && whole && std::fmod(y, 2.0) != 0 ? -size : size;
}

}  // namespace lockstep::graph_math
