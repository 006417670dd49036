// A tensor of a Hugging Face file and the parameters (model/parameter.h) that its rows fill. Example: the file has kv_b [heads * (nope + value), latent];
// the model has two parameters of it, so the file tensor has a piece a head for each. Plain values.
//   FileTensor file{"model.norm.weight", {64}, false, {{norm, 0, 0, 1, false}}}; file.rows() == 1;
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "model/parameter.h"

namespace lockstep {

// Rows [row_begin, row_begin + rows) of a file tensor [file rows, file columns] are item `item` of a parameter:
// element (n, k) = file (row_begin + n, k), or, transposed, file (row_begin + k, n). With column_step 2 every second column belongs to the piece, from
// column_begin on (files that interleave gate and up).
struct Piece {
  ParameterId parameter = 0;
  std::int64_t item = 0, row_begin = 0, rows = 0;
  bool transposed = false;
  std::int64_t column_begin = 0, column_step = 1;
  // Where one file tensor holds the weights of several linear layers: the name of this one, as adapters call it. Else empty.
  std::string layer = {};
};

struct FileTensor {
  std::string name;                 // Hugging Face name
  std::vector<std::int64_t> shape;  // of any rank; seen here as rows of the last dimension
  bool fp32 = false;                // stays fp32 in a bf16 file
  std::vector<Piece> pieces;
  // Files may hold it inside a larger tensor instead: Manifest::fused()[fused], from element `fused_begin` on. -1: they may not.
  std::int32_t fused = -1;
  std::int64_t fused_begin = 0;
  std::int64_t columns() const { return shape.back(); }
  std::int64_t size() const {
    std::int64_t n = 1;
    for (const std::int64_t extent : shape) n *= extent;
    return n;
  }
  std::int64_t rows() const { return size() / columns(); }
};

struct FusedTensor {
  std::string name;
  std::vector<std::int64_t> shape;
};

}  // namespace lockstep
