// What differs between two tensors of one shape, element by element.
//   each_difference(2, before, now, [&](std::int64_t element, std::uint32_t bits) { ... });
// Pure.
#pragma once
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

namespace lockstep {

// Elements that changed, ascending, and their new words.
struct ElementChanges {
  std::vector<std::int64_t> positions;
  std::vector<std::uint32_t> words;
};

// Calls f(element, its new bits) for every element in which two arrays of words of `width` bytes (1, 2 or 4) differ, ascending.
void each_difference(int width, std::string_view before, std::string_view now, const std::function<void(std::int64_t element, std::uint32_t bits)>& f);

}  // namespace lockstep
