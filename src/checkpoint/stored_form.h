// How files hold a tensor, as far as it decides how many bits a weight takes and which profiles compute with its numbers as they are. Knows no file.
// - numbers: F32, BF16 or F16; what a GGUF file decodes to
// - fp8: E4M3 and a scale a block of 128 x 128 (`scale_inv`, by which numbers are multiplied); blocks are counted from 0 in each matrix,
//  of a tensor of all experts in each expert's rows of it
// - mxfp8: E4M3 and a scale a group of 32 inputs, the exponent of a power of two with 127 added (E8M0), in U8 under the name of block scales
// - int4: words of eight integers and a scale a group of 32 inputs (numerics/int4_words.h), as compressed-tensors has them
// - mxfp4: of a tensor [experts, inputs, outputs], as gpt-oss has it: its transpose in groups of 32 inputs (numerics/mxfp4.h), blocks [experts,
//  outputs, inputs / 32, 16] and scales [experts, outputs, inputs / 32]
//   form_of(file, StoredAs::mxfp4, SafetensorsType::u8, true).is_rounded(file, manifest, profile_by_name("cpu-mxfp4-experts")) == false;
// Plain values, any thread.
#pragma once
#include <string>

#include "checkpoint/tensor_file.h"
#include "model/manifest.h"
#include "numerics/profile.h"

namespace lockstep {

enum class StoredAs : std::uint8_t { numbers, fp8, mxfp8, int4, mxfp4 };

struct StoredForm {
  StoredAs as = StoredAs::numbers;
  SafetensorsType type = SafetensorsType::f32;  // of numbers, else of scales
  // int4: its scales are bf16 numbers; fp8, mxfp8: powers of two that E4M3 quantisers keep; mxfp4: such ones
  bool scales_fit = true;
  // Of a tensor that lies in a larger one, of all experts: its first row there; and the rows of a matrix, in each of which blocks are counted from 0.
  std::int64_t first_row = 0, matrix_rows = 0;

  // For reports: "BF16"; "INT4, groups of 32".
  std::string name() const;
  double bits_a_weight() const;  // scales included
  // Numbers that share a scale: rows and columns of fp8 and mxfp8.
  std::int64_t block_rows() const { return as == StoredAs::mxfp8 ? 1 : 128; }
  std::int64_t block_columns() const { return as == StoredAs::mxfp8 ? 32 : 128; }
  // Whether a profile of fp8, or of mxfp8, computes with the numbers and scales as they stand, of all of a tensor or of none: it is the matrix of a linear
  // layer, so that a folder can hold them again, and each block belongs to one of its pieces (transposed where that is); groups of 32 inputs have one
  // scale each, a power of two. `parameter`: of any of its pieces.
  bool keeps_blocks(const FileTensor& file, const Parameter& parameter) const;
  bool keeps_groups(const FileTensor& file, const Parameter& parameter) const;
  // Whether this profile computes with other numbers than those stored, since it has no place for them. `file`: the tensor of the manifest.
  bool is_rounded(const FileTensor& file, const Manifest& manifest, const Profile& profile) const;

 private:
  bool begins_a_block(const Piece& piece) const { return (first_row + piece.row_begin) % matrix_rows % 128 == 0; }
};

// Of a tensor that is not part of a larger one.
StoredForm form_of(const FileTensor& file, StoredAs as, SafetensorsType type, bool scales_fit = true);

}  // namespace lockstep
