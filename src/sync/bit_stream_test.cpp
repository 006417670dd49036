// Bits and Rice codes come back as they were written, and no bytes lead a reader past their end.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cmath>
#include <random>

#include "base/error.h"
#include "sync/bit_reader.h"
#include "sync/bit_writer.h"
#include "sync/varint.h"

namespace lockstep {
namespace {

TEST(BitStream, NumbersOfAllSizesComeBack) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 200; ++round) {
    std::vector<std::uint64_t> numbers(random() % 300);
    for (std::uint64_t& number : numbers) number = random() >> (16 + random() % 48);  // below 2^48
    BitWriter out;
    RiceMean writing(random() % 1000);
    const RiceMean begin = writing;
    for (const std::uint64_t number : numbers) {
      out.rice(writing, number);
      out.bits(number & 1, 1);
    }
    const std::string text = out.finish();
    BitReader in(text);
    RiceMean reading = begin;
    for (const std::uint64_t number : numbers) {
      ASSERT_EQ(in.rice(reading), number);
      ASSERT_EQ(in.bits(1), number & 1);
    }
    EXPECT_TRUE(in.finished());
    // One byte more or less is no such stream.
    const std::string longer = text + '\0';
    BitReader surplus(longer);
    RiceMean surplus_mean = begin;
    for (std::size_t i = 0; i < numbers.size(); ++i) surplus.rice(surplus_mean), surplus.bits(1);
    EXPECT_FALSE(surplus.finished());
    if (text.empty()) continue;
    BitReader shorter(std::string_view(text).substr(0, text.size() - 1));
    RiceMean mean = begin;
    for (std::size_t i = 0; i < numbers.size(); ++i) shorter.rice(mean), shorter.bits(1);
    EXPECT_FALSE(shorter.finished());
  }
}

TEST(BitStream, AGeometricSourceCostsLittleMoreThanItsEntropy) {
  std::mt19937_64 random(5);
  for (const int one_in : {2, 16, 250, 1000}) {
    BitWriter out;
    RiceMean mean(64);
    constexpr int kNumbers = 8000;
    double entropy = 0;
    const double p = 1.0 / one_in;
    for (int i = 0; i < kNumbers; ++i) {
      std::uint64_t gap = 0;
      while (random() % static_cast<std::uint64_t>(one_in) != 0) ++gap;
      out.rice(mean, gap);
    }
    entropy = kNumbers * (-p * std::log2(p) - (1 - p) * std::log2(1 - p)) / p;
    const double bits = 8.0 * static_cast<double>(out.finish().size());
    EXPECT_LT(bits, entropy * 1.03 + 200) << one_in;
    EXPECT_GT(bits, entropy * 0.98) << one_in;
  }
}

TEST(Varint, ComesBackAndHasOneForm) {
  rc::check([](std::uint64_t value) {
    std::string text;
    put_varint(text, value);
    VarintReader in(text);
    RC_ASSERT(in.next() == value);
    RC_ASSERT(in.left() == 0u);
  });
  for (const std::string& text :
       {std::string("\x80", 1), std::string("\x80\x00", 2), std::string("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", 10), std::string()}) {
    VarintReader in(text);
    EXPECT_THROW(in.next(), Error);
  }
}

}  // namespace
}  // namespace lockstep
