// Writes bits one after another, the lowest bit of a byte first, and whole numbers by Rice codes (sync/rice_mean.h). sync/bit_reader.h reads them. One thread.
//   BitWriter out; RiceMean mean(200); out.rice(mean, 137); text = out.finish();
#pragma once
#include <bit>
#include <cstdint>
#include <string>
#include <utility>

#include "sync/rice_mean.h"

namespace lockstep {

class BitWriter {
 public:
  // The lowest `count` bits of a value that has no others; at most 32.
  void bits(std::uint64_t value, int count) {
    held_ |= value << filled_;
    filled_ += count;
    if (filled_ >= 32) {
      const auto low = static_cast<std::uint32_t>(held_);
      bytes_.append(reinterpret_cast<const char*>(&low), 4);
      held_ >>= 32;
      filled_ -= 32;
    }
  }
  // Ones, then a zero: at most 30 ones.
  void unary(int ones) { bits((std::uint64_t{1} << ones) - 1, ones + 1); }
  // `value` below 2^48.
  void rice(RiceMean& mean, std::uint64_t value) { rice(*this, *this, mean, value); }
  // The quotient into one stream, the remainder into another.
  static void rice(BitWriter& quotients, BitWriter& remainders, RiceMean& mean, std::uint64_t value) {
    const int k = mean.parameter();
    const std::uint64_t quotient = value >> k;
    if (quotient < kMostQuotient) {
      quotients.unary(static_cast<int>(quotient));
      remainders.wide(value & ((std::uint64_t{1} << k) - 1), k);
    } else {
      const int length = std::bit_width(value);
      quotients.bits((std::uint64_t{1} << kMostQuotient) - 1, kMostQuotient);
      remainders.bits(static_cast<std::uint64_t>(length), 6);
      remainders.wide(value, length);
    }
    mean.add(value);
  }
  // Returns all bytes, the last one filled up with zeros.
  std::string finish() {
    while (filled_ > 0) {
      bytes_ += static_cast<char>(held_);
      held_ >>= 8;
      filled_ -= 8;
    }
    held_ = 0;
    filled_ = 0;
    return std::move(bytes_);
  }

 private:
  void wide(std::uint64_t value, int count) {
    if (count > 32) {
      bits(value & 0xffffffffu, 32);
      value >>= 32;
      count -= 32;
    }
    bits(value, count);
  }
  std::string bytes_;
  std::uint64_t held_ = 0;
  int filled_ = 0;  // below 32 between calls
};

}  // namespace lockstep
