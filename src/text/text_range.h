// A range of bytes of a text: begin included, end excluded. A plain value.
//   const TextRange word{0, 5}; word.end - word.begin == 5;
#pragma once
#include <cstddef>

namespace lockstep {

struct TextRange {
  std::size_t begin, end;
  bool operator==(const TextRange&) const = default;
};

}  // namespace lockstep
