#include "parallel/bins_codec.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/error.h"

namespace lockstep {

namespace {

constexpr int kLanes = 16, kBinBits = 46;  // of bins 1 and 2; bin 0 has up to 52 and a sign
constexpr std::size_t kWidest = 16;        // bytes of a number
constexpr std::uint8_t kAsInMemory = 255;  // a block's width when its numbers have no such form
constexpr std::uint64_t kBinMask = (std::uint64_t{1} << kBinBits) - 1;
// Adding one of these leaves a bin's multiple of its quantum in the lower bits of the sum.
constexpr double kMagic0 = 0x1.8p+48, kMagic1 = 0x1p+2, kMagic2 = 0x1p-44;

__extension__ typedef unsigned __int128 Wide;
__extension__ typedef __int128 SignedWide;

std::uint64_t bits_of(double x) { return std::bit_cast<std::uint64_t>(x); }

SignedWide signed_wide(std::uint64_t bits) { return static_cast<std::int64_t>(bits); }

// Numbers as integers of 144 bits, in units of 2^-96: `high` 2^92 + `middle` 2^46 + `low`.
struct EncodedGroup {
  std::uint64_t high[kLanes], middle[kLanes], low[kLanes];
};

// Bits of a block's numbers, together.
struct GroupBits {
  std::uint64_t high = 0, middle = 0, low = 0;                 // as they are
  std::uint64_t high_size = 0, middle_size = 0, low_size = 0;  // of what differs from the sign
  std::uint64_t changed = 0;                                   // what does not come back from the integers
};

// Returns what was there, joined with the group's bits.
GroupBits read_group(const double* bins, EncodedGroup& group, GroupBits all) {
  for (int i = 0; i < kLanes; ++i) {
    const double d0 = bins[i] + kMagic0, d1 = bins[kLanes + i] + kMagic1, d2 = bins[2 * kLanes + i] + kMagic2;
    const std::uint64_t high = bits_of(d0) - bits_of(kMagic0), middle = bits_of(d1) - bits_of(kMagic1), low = bits_of(d2) - bits_of(kMagic2);
    const std::uint64_t sign = std::uint64_t{0} - (high >> 63);
    all.changed |= (bits_of(d0 - kMagic0) ^ bits_of(bins[i])) | (bits_of(d1 - kMagic1) ^ bits_of(bins[kLanes + i])) |
                   (bits_of(d2 - kMagic2) ^ bits_of(bins[2 * kLanes + i]));
    all.high |= high, all.middle |= middle, all.low |= low;
    all.high_size |= high ^ sign, all.middle_size |= middle ^ (sign & kBinMask), all.low_size |= low ^ (sign & kBinMask);
    group.high[i] = high, group.middle[i] = middle, group.low[i] = low;
  }
  return all;
}

// The first bit that a number of the block has, and the bytes that each takes from there.
struct BitRange {
  std::uint8_t first = 0, width = 0;
};

BitRange range_of(const GroupBits& all) {
  if (all.changed != 0 || all.high_size >> 51 != 0 || all.middle > kBinMask || all.low > kBinMask) return {0, kAsInMemory};
  const int first = all.low      ? std::countr_zero(all.low)
                    : all.middle ? kBinBits + std::countr_zero(all.middle)
                    : all.high   ? 2 * kBinBits + std::countr_zero(all.high)
                                 : 0;
  if ((all.low | all.middle | all.high) == 0) return {};
  const int last = all.high_size     ? 2 * kBinBits + std::bit_width(all.high_size)
                   : all.middle_size ? kBinBits + std::bit_width(all.middle_size)
                                     : std::bit_width(all.low_size);
  const int width = (std::max(last + 1 - first, 1) + 7) / 8;  // with a sign
  if (width > static_cast<int>(kWidest)) return {0, kAsInMemory};
  return {static_cast<std::uint8_t>(first), static_cast<std::uint8_t>(width)};
}

Wide number_of(const EncodedGroup& group, int lane, int first) {
  const std::uint64_t high = group.high[lane];
  if (first >= 2 * kBinBits) return static_cast<Wide>(signed_wide(high) >> (first - 2 * kBinBits));
  const Wide below = (static_cast<Wide>(group.middle[lane]) << kBinBits) | group.low[lane];
  return (static_cast<Wide>(signed_wide(high)) << (2 * kBinBits - first)) | (below >> first);
}

void write_bins(SignedWide number, int first, double* bins) {
  const Wide bits = static_cast<Wide>(number);
  const auto part = [&](int from) -> std::uint64_t {  // the bits of the number of 144 bits from there
    if (first <= from) return static_cast<std::uint64_t>(static_cast<Wide>(number >> (from - first)));
    return first - from < 64 ? static_cast<std::uint64_t>(bits) << (first - from) : 0;
  };
  bins[0] = std::bit_cast<double>(bits_of(kMagic0) + part(2 * kBinBits)) - kMagic0;
  bins[kLanes] = std::bit_cast<double>(bits_of(kMagic1) + (part(kBinBits) & kBinMask)) - kMagic1;
  bins[2 * kLanes] = std::bit_cast<double>(bits_of(kMagic2) + (part(0) & kBinMask)) - kMagic2;
}

}  // namespace

std::string encode_bins(const double* bins, std::int64_t accumulators) {
  const auto whole = static_cast<std::size_t>(accumulators * kBinBytes);
  std::string out;
  out.reserve(whole / 2);
  EncodedGroup groups[kBinsBlock / kLanes];
  for (std::int64_t begin = 0; begin < accumulators; begin += kBinsBlock) {
    const std::int64_t count = std::min(kBinsBlock, accumulators - begin);
    const double* block = bins + begin * 3;
    GroupBits all;
    for (std::int64_t g = 0; g < count / kLanes; ++g) all = read_group(block + g * 3 * kLanes, groups[g], all);
    const BitRange range = range_of(all);
    const auto bytes = static_cast<std::size_t>(count * (range.width == kAsInMemory ? kBinBytes : range.width));
    const std::size_t at = out.size();
    if (at + 2 + bytes >= whole) {  // no shorter so
      out.assign(reinterpret_cast<const char*>(bins), whole);
      return out;
    }
    out.resize(at + 2 + bytes + kWidest);  // a number is written in its widest form, the next one over the rest
    char* to = out.data() + at;
    *to++ = static_cast<char>(range.first);
    *to++ = static_cast<char>(range.width);
    if (range.width == kAsInMemory) {
      std::memcpy(to, block, bytes);
    } else if (range.width > 0) {
      for (std::int64_t g = 0; g < count / kLanes; ++g)
        for (int lane = 0; lane < kLanes; ++lane, to += range.width) {
          const Wide number = number_of(groups[g], lane, range.first);
          const auto low = static_cast<std::uint64_t>(number), high = static_cast<std::uint64_t>(number >> 64);
          std::memcpy(to, &low, 8);
          std::memcpy(to + 8, &high, 8);
        }
    }
    out.resize(at + 2 + bytes);
  }
  return out;
}

void decode_bins(std::string_view encoded, std::int64_t accumulators, double* bins) {
  const auto whole = static_cast<std::size_t>(accumulators * kBinBytes);
  if (encoded.size() == whole) {
    std::memcpy(bins, encoded.data(), whole);
    return;
  }
  const auto refuse = [&] { fail(ErrorCode::internal, "{} bytes are not those of {} accumulators", encoded.size(), accumulators); };
  std::size_t at = 0;
  for (std::int64_t begin = 0; begin < accumulators; begin += kBinsBlock) {
    const std::int64_t count = std::min(kBinsBlock, accumulators - begin);
    double* block = bins + begin * 3;
    if (encoded.size() - at < 2) refuse();
    const int first = static_cast<std::uint8_t>(encoded[at]);
    const auto width = static_cast<std::uint8_t>(encoded[at + 1]);
    at += 2;
    if (width != kAsInMemory && (width > kWidest || first >= 2 * kBinBits + 52)) refuse();
    const auto bytes = static_cast<std::size_t>(count * (width == kAsInMemory ? kBinBytes : width));
    if (encoded.size() - at < bytes) refuse();
    if (width == kAsInMemory) {
      std::memcpy(block, encoded.data() + at, bytes);
    } else if (width == 0) {
      std::fill_n(block, count * 3, 0.0);
    } else {
      const int unused = 128 - 8 * width;
      const char* from = encoded.data() + at;
      for (std::int64_t i = 0; i < count; ++i, from += width) {
        Wide bits = 0;
        std::memcpy(&bits, from, std::min<std::size_t>(kWidest, static_cast<std::size_t>(encoded.data() + encoded.size() - from)));
        write_bins(static_cast<SignedWide>(bits << unused) >> unused, first, block + i / kLanes * 3 * kLanes + i % kLanes);
      }
    }
    at += bytes;
  }
  if (at != encoded.size()) refuse();
}

}  // namespace lockstep
