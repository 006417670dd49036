// Passes over arrays of words of 1, 2 or 4 bytes, for the delta codec (sync/class_scan.h): which words of two arrays differ; the class of each word,
// which is a field of its bits, clamped; how many words of a group have a class. Integer operations only.
//   word_classes(weights, WordField{2, 7, 255}, 100, 15, 4096, classes);   count_classes(classes, 16, counts);
// Pure functions but for the last; they need AVX2, which the tree is compiled for.
#pragma once
#include <cstdint>

namespace lockstep {

// Which bits of a word are looked at: (word >> shift) & mask, below 256.
struct WordField {
  int width = 2;  // bytes of a word: 1, 2 or 4
  int shift = 0;
  int mask = 0;
};

// Bit i of to[b] is set where word 64 b + i of the arrays a and b differs. Both arrays have blocks x 64 words.
void difference_masks(const void* a, const void* b, int width, std::int64_t blocks, std::uint64_t* to);
// to[i] = min(max(field of word i, low) - low, most). `count`: number of words, a multiple of 32.
void word_classes(const void* words, const WordField& field, int low, int most, std::int64_t count, std::uint8_t* to);

inline constexpr int kClassGroup = 256;  // elements whose classes are counted at once
// counts[c] = number of the group's 256 elements that have class c, for c < classes <= 16.
void count_classes(const std::uint8_t* group, int classes, std::int32_t* counts);
// How many of the group's first `end` <= 256 elements have class c.
int class_rank(const std::uint8_t* group, int c, int end);
// The index in the group of the element of class c that has `rank` others of class c before it; such an element must exist.
int class_place(const std::uint8_t* group, int c, int rank);

// For tests: whether the last three use AVX-512 where the machine has it, as they do unless told; returns what was before.
bool use_wide_word_classes(bool wanted);

}  // namespace lockstep
