// A range of bytes of some text, the first included, the last not. A plain value.
#pragma once
#include <cstddef>

namespace lockstep {

struct TextRange {
  std::size_t begin, end;
  bool operator==(const TextRange&) const = default;
};

}  // namespace lockstep
