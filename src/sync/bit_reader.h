// Reads what sync/bit_writer.h wrote. Past the end it reads zeros and remembers that, so a loop need not check each read: the caller checks finished()
// once, after the last. One thread.
//   BitReader in(text); RiceMean mean(200); in.rice(mean) == 137; in.finished();
#pragma once
#include <bit>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "sync/rice_mean.h"

namespace lockstep {

class BitReader {
 public:
  BitReader() = default;
  // `bytes` must outlive this.
  explicit BitReader(std::string_view bytes) : next_(bytes.data()), end_(bytes.data() + bytes.size()) {}
  std::uint64_t bits(int count) {  // at most 48
    refill();
    const std::uint64_t value = held_ & ((std::uint64_t{1} << count) - 1);
    drop(count);
    return value;
  }
  std::uint64_t rice(RiceMean& mean) { return rice(*this, *this, mean); }
  static std::uint64_t rice(BitReader& quotients, BitReader& remainders, RiceMean& mean) {
    quotients.refill();
    const int ones = std::countr_one(quotients.held_);
    std::uint64_t value;
    if (ones < kMostQuotient) {
      quotients.drop(ones + 1);
      const int k = mean.parameter();
      value = static_cast<std::uint64_t>(ones) << k | remainders.bits(k);
    } else {
      quotients.drop(kMostQuotient);
      const int length = static_cast<int>(remainders.bits(6));
      value = length <= 48 ? remainders.bits(length) : (remainders.overran_ = true, 0);
    }
    mean.add(value);
    return value;
  }
  // Whether all was read, and no more: what is left are fewer than 8 bits, all zero.
  bool finished() const { return !overran_ && next_ == end_ && filled_ - past_ < 8 && held_ == 0 && filled_ >= past_; }

 private:
  // At least 49 bits are held afterwards; beyond the end they are zeros, counted in past_.
  void refill() {
    if (filled_ > 48) return;
    if (end_ - next_ >= 8) {
      std::uint64_t word;
      std::memcpy(&word, next_, 8);
      const int bytes = (63 - filled_) >> 3;
      held_ |= (word & ((std::uint64_t{1} << (8 * bytes)) - 1)) << filled_;
      next_ += bytes;
      filled_ += 8 * bytes;
      return;
    }
    while (filled_ <= 48) {
      if (next_ < end_) held_ |= static_cast<std::uint64_t>(static_cast<std::uint8_t>(*next_++)) << filled_;
      else past_ += 8;
      filled_ += 8;
    }
  }
  void drop(int count) {
    held_ >>= count;
    filled_ -= count;
    if (filled_ < past_) {
      overran_ = true;
      past_ = filled_;
    }
  }
  const char *next_ = nullptr, *end_ = nullptr;
  std::uint64_t held_ = 0;
  int filled_ = 0, past_ = 0;  // bits held, and those of them that are beyond the end
  bool overran_ = false;
};

}  // namespace lockstep
