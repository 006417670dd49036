// Tensors that files have in E4M3, as codes and scales and not as numbers: for what computes with a file's own, and writes them again.
//   if (tensor.form().keeps_blocks(file, parameter)) read_blocks(tensor, row, 128, codes, scales);
// Several threads may read. Errors: those of StoredTensor::read.
#pragma once
#include "checkpoint/stored_tensor.h"

namespace lockstep {

// Of fp8: the codes [rows][columns] of rows from one on at which a block begins, and their scales [blocks of rows][blocks of columns].
void read_blocks(const StoredTensor& tensor, std::int64_t row, std::int64_t rows, std::uint8_t* codes, std::vector<float>& scales);
// Of fp8 and mxfp8 whose scales are powers of two (StoredForm::keeps_groups): the codes of any rows, and exponents [rows][groups of 32 columns] as MXFP8
// has them.
void read_groups(const StoredTensor& tensor, std::int64_t row, std::int64_t rows, std::vector<std::uint8_t>& codes, std::vector<std::uint8_t>& exponents);

}  // namespace lockstep
