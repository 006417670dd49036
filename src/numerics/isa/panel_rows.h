// Copies a panel [columns][16] of words to 16 rows, as files have them: how the bits of a packed parameter are read in row-major order.
//   panel_rows(panel, 2, 576, rows, 576);
// Pure function; it needs AVX2, which the tree is compiled for.
#pragma once
#include <cstdint>

namespace lockstep {

// `width`: bytes of a word, 2 or 4. Row n of `to` begins at word n * stride.
void panel_rows(const void* panel, int width, std::int64_t columns, void* to, std::int64_t stride);

}  // namespace lockstep
