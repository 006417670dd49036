// The register tile of matrix products per instruction set (rows x panels of 16 outputs), and the names of the vector
// types. Tiles change speed, never order: the traced backend runs every kernel with each of them.
#pragma once

namespace lockstep {

struct ScalarTiles {
  static constexpr int kRows = 4, kPanels = 1;
};
struct Avx2Tiles {
  static constexpr int kRows = 6, kPanels = 1;
};
struct Avx512Tiles {
  static constexpr int kRows = 12, kPanels = 2;
};

struct ScalarVec;
struct Avx2Vec;
struct Avx512Vec;
template <class Tiles>
struct TracedVec;

}  // namespace lockstep
