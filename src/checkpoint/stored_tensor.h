// One tensor of the manifest as files hold it: as numbers (of its own, or part of a tensor of all experts), or in few bits beside its scales. It
// is read by rows, so that no one needs all of it at once.
// - numbers: F32, BF16 or F16; what a GGUF file decodes to
// - fp8: E4M3 and a scale a block of 128 x 128 (`scale_inv`, by which numbers are multiplied); blocks are counted from 0 in each matrix,
//  of a tensor of all experts in each expert's rows of it
// - mxfp8: E4M3 and a scale a group of 32 inputs, the exponent of a power of two with 127 added (E8M0), in U8 under the name of block scales
// - int4: words of eight integers and a scale a group of 32 inputs (numerics/int4_words.h), as compressed-tensors has them
// - mxfp4: of a tensor [experts, inputs, outputs], as gpt-oss has it: its transpose in groups of 32 inputs (numerics/mxfp4.h), blocks [experts,
//  outputs, inputs / 32, 16] and scales [experts, outputs, inputs / 32]
//   StoredTensor::find(files, manifest, file, used)->read(0, file.rows(), values);
// Several threads may read.
#pragma once
#include <optional>
#include <set>

#include "checkpoint/model_files.h"
#include "model/manifest.h"
#include "numerics/element.h"
#include "numerics/profile.h"

namespace lockstep {

enum class StoredAs : std::uint8_t { numbers, fp8, mxfp8, int4, mxfp4 };

// Of a tensor in E4M3: rows of `values` from first_row on are its own, whose blocks are counted in matrices of `rows` rows.
struct StoredE4m3 {
  ModelFiles::Found values, scales;
  std::int64_t first_row = 0, rows = 0, columns = 0;
  std::int64_t block_rows = 0, block_columns = 0;  // numbers that share a scale
  bool scales_fit = false;                         // powers of two that quantisers keep
};

class StoredTensor {
 public:
  // Empty when no file has it. Adds the names of the tensors that hold it to `used`. Errors: corrupt_file for a wrong shape or missing scales;
  // unsupported for a dtype of scales that is no floating-point number.
  static std::optional<StoredTensor> find(const ModelFiles& files, const Manifest& manifest, const FileTensor& file, std::set<std::string>& used);

  const FileTensor& file() const { return *file_; }
  StoredAs as() const { return as_; }
  // How it is stored, for reports: "BF16"; "INT4, groups of 32".
  std::string type_name() const;
  double bits_a_weight() const;  // scales included
  SafetensorsType type() const { return values_.tensor->type; }

  // Reads of this many rows that begin at a multiple of it decode nothing twice.
  std::int64_t rows_together() const { return as_ == StoredAs::mxfp4 ? file_->shape[1] : 1; }
  // Rows [row, row + rows) in fp32: what is stored in few bits is number * scale, rounded once. Errors: corrupt_file for a value that is not finite.
  void read(std::int64_t row, std::int64_t rows, float* values) const;
  // Of mxfp4: outputs first, first + step, .. of an expert, as the blocks have them: `values` [count][inputs]. Decodes these alone. Errors: those
  // of read.
  void read_outputs(std::int64_t expert, std::int64_t first, std::int64_t step, std::int64_t count, float* values) const;
  // Of mxfp4: its blocks and scales as they are.
  void read_mxfp4_bytes(std::vector<std::uint8_t>& blocks, std::vector<std::uint8_t>& scales) const;
  // Of int4: whether its scales are bf16 numbers, as int4 profiles have them; then its words and scales as they are. Errors: those of read.
  bool holds_int4() const { return as_ == StoredAs::int4 && scales_fit_; }
  void read_int4(std::int64_t row, std::int64_t rows, std::uint32_t* words, Bf16* scales) const;
  // Where the codes and scales of fp8 and mxfp8 lie (checkpoint/stored_e4m3.h).
  StoredE4m3 e4m3() const { return {values_, scales_, first_row_, rows_, file_->columns(), block_rows(), block_columns(), scales_fit_}; }
  // Of few bits but mxfp4: the types of its scales and, of int4, its shape in the file.
  SafetensorsType scale_type() const { return scales_.tensor->type; }
  SafetensorsType shape_type() const { return shape_type_; }

  // Whether this profile computes with other numbers than those stored, since it has no place for them.
  bool is_rounded(const Manifest& manifest, const Profile& profile) const;

 private:
  StoredTensor(const FileTensor& file, ModelFiles::Found values)
      : file_(&file), values_(values), rows_(file.shape.size() > 2 ? file.shape[file.shape.size() - 2] : file.rows()) {}
  void find_block_scales(const ModelFiles& files, const std::string& matrix, std::vector<std::int64_t> shape, std::set<std::string>& used);
  void find_packed(const ModelFiles& files, std::set<std::string>& used);
  void find_mxfp4(const ModelFiles& files, std::set<std::string>& used);
  void read_mxfp4(std::int64_t row, std::int64_t rows, float* values) const;
  void read_scales(std::int64_t first, std::span<float> scales) const;
  // Numbers that share a scale: rows and columns of fp8 and mxfp8.
  std::int64_t block_rows() const { return as_ == StoredAs::mxfp8 ? 1 : 128; }
  std::int64_t block_columns() const { return as_ == StoredAs::mxfp8 ? 32 : 128; }
  void scale_blocks(std::int64_t row, std::int64_t rows, float* values) const;
  bool block_begins(const Piece& piece) const;

  const FileTensor* file_;
  StoredAs as_ = StoredAs::numbers;
  ModelFiles::Found values_, scales_{};
  std::int64_t first_row_ = 0;  // of `values_`, seen as rows of the last dimension
  std::int64_t rows_;           // of the matrix in which blocks are counted
  SafetensorsType shape_type_ = SafetensorsType::i64;
  bool scales_fit_ = true;  // int4: they are bf16 numbers; fp8, mxfp8: powers of two that E4M3 quantisers keep; mxfp4: such ones
};

// Error corrupt_file where they differ.
void check_tensor_shape(const TensorFile& file, const SafetensorsTensor& tensor, const std::vector<std::int64_t>& shape);

}  // namespace lockstep
