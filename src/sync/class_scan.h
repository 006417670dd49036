// Groups a tensor's elements into classes by their old exponent, and iterates over them. Small weights change more often than large ones, since a
// step of a given size crosses more of their rounding boundaries. Within a class the probability is about the same, so the gaps between changes
// compress well (sync/sparse_codec.h). One thread each.
//   const ClassChoice choice = choose_classes(kind, old, n);  ClassScan scan(kind, choice, old, n);  while (scan.next_chunk()) ...
#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "numerics/isa/word_classes.h"
#include "sync/element.h"

namespace lockstep {

inline constexpr int kMostClasses = 16;

// Class 0: exponents up to `low`. Then one class for each exponent; the last one has all exponents from low + count - 1.
struct ClassChoice {
  int low = 0, count = 1;
};

// Chosen from a fixed sample of the old values: the last class begins at the highest exponent that at least 1 in 256 of the sampled elements have.
ClassChoice choose_classes(const ElementKind& kind, const void* old_words, std::int64_t elements);

// Words at any address: tensors in files are not aligned.
std::uint32_t word_of(const void* words, int width, std::int64_t i);
void put_word(void* words, int width, std::int64_t i, std::uint32_t word);

class ClassScan {
 public:
  static constexpr int kChunk = 4096;  // elements; a multiple of kClassGroup

  // `old_words` must outlive this. The words of a chunk are read before next_chunk returns, so a caller may change these in place.
  ClassScan(const ElementKind& kind, const ClassChoice& choice, const void* old_words, std::int64_t elements);
  bool next_chunk();                             // false at the end
  std::int64_t first() const { return first_; }  // element
  int size() const { return size_; }             // at most kChunk
  int groups() const { return (size_ + kClassGroup - 1) / kClassGroup; }
  // The classes of 256 elements; elements beyond the tensor's end have a class that is none of the choice's.
  const std::uint8_t* group(int g) const { return classes_.data() + g * kClassGroup; }
  // Which elements of this chunk differ in `new_words`: to[0 to 63], a bit for each element.
  void differences(const void* new_words, std::uint64_t* to) const;

 private:
  // Words of this chunk as a whole number of 64: of the last ones a copy filled with zeros.
  const char* whole(const void* words, std::vector<char>& copy) const;
  ElementKind kind_;
  ClassChoice choice_;
  const char* words_;
  std::int64_t elements_, first_ = 0;
  int size_ = 0;
  std::array<std::uint8_t, kChunk> classes_{};
};

}  // namespace lockstep
