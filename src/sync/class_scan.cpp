#include "sync/class_scan.h"

#include <algorithm>
#include <cstring>

namespace lockstep {
namespace {
constexpr std::int64_t kSampledBlock = 32;  // of blocks of 64 elements one in so many, the first included
constexpr std::int64_t kSampledAhead = 8;   // sampled blocks that are asked for ahead
constexpr std::uint8_t kNoClass = 255;      // of what stands beyond a tensor's end

int up_to_64(int size) { return (size + 63) / 64 * 64; }
}  // namespace

std::uint32_t word_of(const void* words, int width, std::int64_t i) {
  const auto* at = static_cast<const char*>(words) + i * width;
  if (width == 2) {
    std::uint16_t word;
    std::memcpy(&word, at, 2);
    return word;
  }
  if (width == 1) return static_cast<std::uint8_t>(*at);
  std::uint32_t word;
  std::memcpy(&word, at, 4);
  return word;
}

void put_word(void* words, int width, std::int64_t i, std::uint32_t word) {
  auto* at = static_cast<char*>(words) + i * width;
  if (width == 2) {
    const auto half = static_cast<std::uint16_t>(word);
    std::memcpy(at, &half, 2);
  } else if (width == 1) {
    *at = static_cast<char>(word);
  } else {
    std::memcpy(at, &word, 4);
  }
}

ClassChoice choose_classes(const ElementKind& kind, const void* old_words, std::int64_t elements) {
  if (!kind.floating || elements == 0) return {};
  std::array<std::int64_t, 256> counts{};
  std::int64_t all = 0;
  const auto* bytes = static_cast<const char*>(old_words);
  for (std::int64_t begin = 0; begin < elements; begin += 64 * kSampledBlock) {
    // The processor asks for no line so far away by itself.
    const std::int64_t ahead = begin + 64 * kSampledBlock * kSampledAhead;
    for (std::int64_t line = 0; ahead < elements && line < 64 * kind.width; line += 64) __builtin_prefetch(bytes + ahead * kind.width + line);
    for (std::int64_t i = begin; i < std::min(begin + 64, elements); ++i, ++all)
      ++counts[static_cast<std::size_t>(kind.exponent(word_of(old_words, kind.width, i)))];
  }
  int high = kind.exponents - 1;
  while (high > 0 && counts[static_cast<std::size_t>(high)] * 256 < all) --high;
  const int low = std::max(0, high - (kMostClasses - 1));
  return {low, high - low + 1};
}

ClassScan::ClassScan(const ElementKind& kind, const ClassChoice& choice, const void* old_words, std::int64_t elements)
    : kind_(kind), choice_(choice), words_(static_cast<const char*>(old_words)), elements_(elements) {}

const char* ClassScan::whole(const void* words, std::vector<char>& copy) const {
  const char* at = static_cast<const char*>(words) + first_ * kind_.width;
  if (size_ == up_to_64(size_)) return at;
  copy.assign(static_cast<std::size_t>(up_to_64(size_) * kind_.width), '\0');
  std::memcpy(copy.data(), at, static_cast<std::size_t>(size_ * kind_.width));
  return copy.data();
}

bool ClassScan::next_chunk() {
  first_ += size_;
  if (first_ >= elements_) return false;
  size_ = static_cast<int>(std::min<std::int64_t>(kChunk, elements_ - first_));
  std::vector<char> copy;
  const WordField field{kind_.width, kind_.exponent_shift, kind_.exponents - 1};
  word_classes(whole(words_, copy), field, choice_.low, choice_.count - 1, up_to_64(size_), classes_.data());
  std::fill(classes_.begin() + size_, classes_.begin() + groups() * kClassGroup, kNoClass);
  return true;
}

void ClassScan::differences(const void* new_words, std::uint64_t* to) const {
  std::vector<char> copy_old, copy_new;
  std::fill(to, to + kChunk / 64, 0);
  difference_masks(whole(words_, copy_old), whole(new_words, copy_new), kind_.width, up_to_64(size_) / 64, to);
}

}  // namespace lockstep
