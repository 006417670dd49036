#include "checkpoint/state_sum.h"

#include <algorithm>
#include <bit>

namespace lockstep {

namespace {
// The last step of SplitMix64.
std::uint64_t mixed(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}
}  // namespace

std::uint64_t state_sum(StatePart part, const Parameter& whole, const RowsPlace& place, std::span<const float> values) {
  const std::uint64_t key = mixed(static_cast<std::uint64_t>(place.parameter) * 4 + static_cast<std::uint64_t>(part) + 1);
  std::uint64_t sum = 0;
  const float* next = values.data();
  for (std::int64_t row = place.first; row < place.first + place.rows; ++row) {
    const std::int64_t item = place.corner.item + row / place.rows_of_item(), output = row % place.rows_of_item() * place.height();
    const std::int64_t lanes = std::min(place.height(), place.outputs - output), first = place.corner.output + output;
    for (std::int64_t k = 0; k < place.inputs; ++k, next += place.height())
      for (std::int64_t lane = 0; lane < lanes; ++lane) {
        const auto offset = static_cast<std::uint64_t>(whole.offset(item, first + lane, place.corner.input + k));
        sum += std::bit_cast<std::uint32_t>(next[lane]) * (mixed(key + offset) | 1);
      }
  }
  return sum;
}

}  // namespace lockstep
