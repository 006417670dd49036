// Tensors that files have in E4M3, as codes and scales and not as numbers: for what computes with a file's own, and writes them again.
//   if (holds_blocks(tensor, piece)) read_blocks(tensor, row, 128, codes, scales);
// Several threads may read. Errors: those of StoredTensor::read.
#pragma once
#include "checkpoint/stored_tensor.h"

namespace lockstep {

// Whether the blocks of 128 x 128 of a piece's matrix are those of the file, as profiles of fp8 have them; then the codes [rows][columns] of rows from one
// on at which a block begins, and their scales [blocks of rows][blocks of columns].
bool holds_blocks(const StoredTensor& tensor, const Piece& piece);
void read_blocks(const StoredTensor& tensor, std::int64_t row, std::int64_t rows, std::uint8_t* codes, std::vector<float>& scales);
// Whether a piece's matrix is the file's MXFP8 under scales that a quantiser keeps; then all codes [rows][columns] and exponents [rows][groups of columns].
bool holds_groups(const StoredTensor& tensor, const Piece& piece);
void read_groups(const StoredTensor& tensor, std::vector<std::uint8_t>& codes, std::vector<std::uint8_t>& exponents);

}  // namespace lockstep
