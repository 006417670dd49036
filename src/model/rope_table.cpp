#include "model/rope_table.h"

#include "numerics/elementary_double.h"

namespace lockstep {

std::vector<float> rope_table(std::int64_t positions, std::int64_t rotary, double theta) {
  std::vector<float> inverse(static_cast<std::size_t>(rotary / 2));
  for (std::size_t j = 0; j < inverse.size(); ++j)
    inverse[j] = static_cast<float>(power_double(theta, -2.0 * static_cast<double>(j) / static_cast<double>(rotary)));
  std::vector<float> table(static_cast<std::size_t>(positions * rotary));
  for (std::int64_t p = 0; p < positions; ++p)
    for (std::size_t j = 0; j < inverse.size(); ++j) {
      const float angle = static_cast<float>(p) * inverse[j];
      double sine, cosine;
      sin_cos_double(static_cast<double>(angle), sine, cosine);
      float* pair = table.data() + p * rotary + 2 * static_cast<std::int64_t>(j);
      pair[0] = static_cast<float>(cosine);
      pair[1] = static_cast<float>(sine);
    }
  return table;
}

}  // namespace lockstep
