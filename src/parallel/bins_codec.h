// Order-free accumulators (numerics/accumulator.h) as they travel between processes: exactly, in as few bytes as their values need (docs/numerics.md).
//   const std::string encoded = encode_bins(bins, 160); decode_bins(encoded, 160, bins);   // the same bytes as before
// `bins` in memory form: 48 doubles for every 16 accumulators, whose number is a multiple of 16.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

inline constexpr std::int64_t kBinsBlock = 64;  // accumulators with one range
inline constexpr std::int64_t kBinBytes = 24;   // of an accumulator in memory

// Never longer than memory form: what would be is that, unchanged.
std::string encode_bins(const double* bins, std::int64_t accumulators);
// Error internal: `encoded` is not of that many accumulators.
void decode_bins(std::string_view encoded, std::int64_t accumulators, double* bins);

}  // namespace lockstep
