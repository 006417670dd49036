// Accumulators as they travel: the same bytes come back, whatever they are; how many bytes their values need; what is no encoded form is refused.
#include "parallel/bins_codec.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/error.h"
#include "base/philox.h"
#include "numerics/exact_sum.h"

namespace lockstep {
namespace {

using Bins = std::vector<double>;

void set(Bins& bins, std::size_t at, const double* number) {
  for (std::size_t k = 0; k < 3; ++k) bins[at / 16 * 48 + k * 16 + at % 16] = number[k];
}

// Sums of some deposits, magnitudes 2^low to 2^high evenly in the exponent, carried.
Bins sums(std::size_t count, int low, int high, RandomSequence& draws) {
  Bins bins(count * 3);
  for (std::size_t i = 0; i < count; ++i) {
    double number[3] = {};
    for (std::uint32_t left = draws.below(5); left > 0; --left) {
      const int exponent = low + static_cast<int>(draws.below(static_cast<std::uint32_t>(high - low + 1)));
      deposit_in_bins(number, std::ldexp(static_cast<float>(1 + draws.uniform()), exponent) * (draws.next() & 1 ? 1.0f : -1.0f));
    }
    carry_in_bins(number);
    set(bins, i, number);
  }
  return bins;
}

// The length on the way; the bytes must come back.
std::size_t travels(const Bins& bins) {
  const auto count = static_cast<std::int64_t>(bins.size() / 3);
  const std::string encoded = encode_bins(bins.data(), count);
  Bins back(bins.size(), 0x1.2345p+7);
  decode_bins(encoded, count, back.data());
  EXPECT_EQ(std::memcmp(back.data(), bins.data(), bins.size() * sizeof(double)), 0);
  EXPECT_LE(encoded.size(), bins.size() * sizeof(double));
  return encoded.size();
}

TEST(BinsCodec, SumsOfEveryRangeComeBack) {
  RandomSequence draws(5, RandomStream::fuzz);
  for (int round = 0; round < 3000; ++round) {
    const int low = -149 + static_cast<int>(draws.below(189)), high = low + static_cast<int>(draws.below(static_cast<std::uint32_t>(41 - low)));
    travels(sums(16 * (1 + draws.below(12)), low, high, draws));
    if (::testing::Test::HasFailure()) FAIL() << "round " << round << ", magnitudes 2^" << low << " to 2^" << high;
  }
}

// Each bit of a number alone, of both signs, among zeros and beside each other one.
TEST(BinsCodec, EveryBitComesBack) {
  const auto bit = [](int place, bool negative) {
    double number[3] = {};
    const int bin = place >= 92 ? 0 : place >= 46 ? 1 : 2;
    number[bin] = std::ldexp(negative ? -1.0 : 1.0, place - 96);
    carry_in_bins(number);
    return std::vector<double>(number, number + 3);
  };
  for (int place = 0; place < 143; ++place)
    for (const bool negative : {false, true}) {
      Bins alone(48);
      set(alone, 7, bit(place, negative).data());
      EXPECT_EQ(travels(alone), 2 + 16) << place;  // a byte each, whichever bit it is
      for (int other = 0; other < 143; other += 3) {
        Bins both = alone;
        set(both, 11, bit(other, !negative).data());
        travels(both);
      }
      ASSERT_FALSE(HasFailure()) << place;
    }
}

TEST(BinsCodec, TakeTheBytesThatValuesNeed) {
  RandomSequence draws(6, RandomStream::fuzz);
  const Bins none(640 * 3);
  EXPECT_EQ(travels(none), 10 * 2);
  const auto bytes_each = [](const Bins& bins) { return static_cast<double>(travels(bins)) / (static_cast<double>(bins.size()) / 3); };
  EXPECT_LE(bytes_each(sums(6400, -20, -20, draws)), 5);
  EXPECT_LE(bytes_each(sums(6400, -30, -10, draws)), 8);
  EXPECT_LE(bytes_each(sums(6400, -149, -10, draws)), 12);
  EXPECT_LE(bytes_each(sums(6400, -149, 20, draws)), 16);
  // A wide block costs its own bytes alone.
  Bins mixed = sums(6400, -20, -20, draws);
  const std::size_t before = travels(mixed);
  const double wide[3] = {0x1p+40, 0, 0x1p-96};
  set(mixed, 70, wide);
  EXPECT_LE(travels(mixed), before + 64 * 24);
  EXPECT_GT(travels(mixed), before);
}

// What no carried sum is goes as it stands, and costs its own block alone.
TEST(BinsCodec, SpecialsAndForeignNumbersComeBack) {
  RandomSequence draws(7, RandomStream::fuzz);
  const double infinity = std::numeric_limits<double>::infinity();
  const std::vector<double> foreign = {std::nan(""),
                                       -std::nan("7"),
                                       std::bit_cast<double>(0xFFF8000000000123),
                                       infinity,
                                       -infinity,
                                       -0.0,
                                       0x1p-1074,
                                       -0x1p-97,
                                       0x1p+1000,
                                       -0x1p+60,
                                       0x1.fffffffffffffp+1023,
                                       0x1.0000000000001p-50,
                                       0x1p+51,
                                       -0x1p+47,
                                       0x1.8p+48,
                                       -0x1.8p+48,
                                       3.0};
  for (std::size_t bin = 0; bin < 3; ++bin)
    for (const double value : foreign) {
      Bins bins = sums(640, -40, 3, draws);
      const std::size_t before = travels(bins);
      bins[48 * 13 + bin * 16 + 5] = value;
      EXPECT_LE(travels(bins), before + 64 * 24) << value << " in bin " << bin;
    }
  // Any bits at all.
  for (int round = 0; round < 500; ++round) {
    Bins bins(16 * 3 * (1 + draws.below(8)));
    for (double& number : bins) number = std::bit_cast<double>(static_cast<std::uint64_t>(draws.next()) << 32 | draws.next());
    EXPECT_EQ(travels(bins), bins.size() * sizeof(double));
  }
}

TEST(BinsCodec, WhatIsNoEncodedFormIsRefused) {
  RandomSequence draws(8, RandomStream::fuzz);
  const Bins bins = sums(160, -30, -3, draws);
  const std::string encoded = encode_bins(bins.data(), 160);
  Bins out(bins.size());
  for (std::size_t size = 0; size < encoded.size(); ++size)
    EXPECT_THROW(decode_bins(std::string_view(encoded).substr(0, size), 160, out.data()), Error) << size;
  EXPECT_THROW(decode_bins(encoded + '\0', 160, out.data()), Error);
  EXPECT_THROW(decode_bins(encoded, 144, out.data()), Error);
  std::string wide = encoded;
  wide[1] = 17;
  EXPECT_THROW(decode_bins(wide, 160, out.data()), Error);
  // A changed byte is other numbers: the comparison above would see it.
  std::string changed = encoded;
  changed[40] = static_cast<char>(changed[40] ^ 1);
  decode_bins(changed, 160, out.data());
  EXPECT_NE(std::memcmp(out.data(), bins.data(), bins.size() * sizeof(double)), 0);
}

}  // namespace
}  // namespace lockstep
