// Bits behind one another: the lowest bit of a byte is the first. Whole numbers by Rice codes whose parameter follows what was coded.
//   BitWriter out; RiceMean mean(200); out.rice(mean, 137); text = out.finish();
//   BitReader in(text); RiceMean again(200); in.rice(again) == 137; in.finished()
// A reader past the end reads zeros and remembers it, so that a loop need not ask: whoever reads asks finished() when done. Integers alone, so
// the bits are the same on every machine. One thread.
#pragma once
#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace lockstep {

// The mean of the numbers coded so far, recent ones more, which decides the Rice parameter k of the next: the least with 2^k at least half the mean.
class RiceMean {
 public:
  // `expected`: the mean before anything is coded.
  explicit RiceMean(std::uint64_t expected = 0) : sum_(expected < kMost ? expected : kMost) {}
  int parameter() const {
    const std::uint64_t twice = 2 * count_;
    if (sum_ <= twice) return 0;
    return std::bit_width((sum_ - 1) / twice);  // the least k with (twice << k) >= sum
  }
  void add(std::uint64_t value) {
    sum_ += value < kMost ? value : kMost;
    if (++count_ == kWindow) {
      sum_ = (sum_ + 1) / 2;
      count_ /= 2;
    }
  }

 private:
  static constexpr std::uint64_t kWindow = 64, kMost = std::uint64_t{1} << 40;
  std::uint64_t sum_, count_ = 1;
};

// A number of a higher quotient than this is written whole: so many ones, six bits with its length, its bits.
inline constexpr int kMostQuotient = 24;

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
  // What was written, the last byte filled with zeros.
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
