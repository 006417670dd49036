// Words of 1, 2 or 4 bytes, many at once: which of two texts differ, and of which class each is by some of its bits. Integer operations alone.
//   word_classes(weights, WordField{2, 7, 255}, 100, 15, 4096, classes);   count_classes(classes, 16, counts);
// Knows nothing of what the words are. Pure functions; they need AVX2, which the tree is compiled for.
#pragma once
#include <cstdint>

namespace lockstep {

// Which bits of a word are looked at: (word >> shift) & mask, below 256.
struct WordField {
  int width = 2;  // bytes of a word: 1, 2 or 4
  int shift = 0;
  int mask = 0;
};

// to[block], a bit for each of 64 words: which differ. Both texts have blocks x 64 words.
void difference_masks(const void* a, const void* b, int width, std::int64_t blocks, std::uint64_t* to);
// to[i] = min(max(field of word i, low) - low, most). `words`: how many, a multiple of 32.
void word_classes(const void* words, const WordField& field, int low, int most, std::int64_t count, std::uint8_t* to);

inline constexpr int kClassGroup = 256;  // elements whose classes are counted at once
// counts[c], for c below `classes`, which is at most 16: how many of the 256 have it.
void count_classes(const std::uint8_t* group, int classes, std::int32_t* counts);
// How many of the first `end` of a group, at most 256, have this class.
int class_rank(const std::uint8_t* group, int c, int end);
// The place in a group of the element of this class before which there are `rank` others of it: it must be there.
int class_place(const std::uint8_t* group, int c, int rank);

}  // namespace lockstep
