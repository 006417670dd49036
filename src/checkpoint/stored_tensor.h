// One tensor of the manifest as files hold it: as numbers (of its own, or part of a tensor of all experts), or in few bits beside its scales. It
// is read by rows, so that no one needs all of it at once. The ways of storing it are those of checkpoint/stored_form.h.
//   StoredTensor::find(files, manifest, file, used)->read(0, file.rows(), values);
// Several threads may read.
#pragma once
#include <optional>
#include <set>

#include "checkpoint/model_files.h"
#include "checkpoint/stored_form.h"
#include "numerics/element.h"

namespace lockstep {

// Of a tensor in E4M3: its numbers, of which form.first_row is the first, and their scales.
struct StoredE4m3 {
  ModelFiles::Found values, scales;
  StoredForm form;
  std::int64_t columns = 0;
};

class StoredTensor {
 public:
  // Empty when no file has it. Adds the names of the tensors that hold it to `used`. Errors: corrupt_file for a wrong shape or missing scales;
  // unsupported for a dtype of scales that is no floating-point number.
  static std::optional<StoredTensor> find(const ModelFiles& files, const Manifest& manifest, const FileTensor& file, std::set<std::string>& used);

  const FileTensor& file() const { return *file_; }
  const StoredForm& form() const { return form_; }
  StoredAs as() const { return form_.as; }
  SafetensorsType type() const { return values_.tensor->type; }

  // Reads of this many rows that begin at a multiple of it decode nothing twice.
  std::int64_t rows_together() const { return as() == StoredAs::mxfp4 ? file_->shape[1] : 1; }
  // Rows [row, row + rows) in fp32: what is stored in few bits is number * scale, rounded once. Errors: corrupt_file for a value that is not finite.
  void read(std::int64_t row, std::int64_t rows, float* values) const;
  // Of mxfp4: outputs first, first + step, .. of an expert, as the blocks have them: `values` [count][inputs]. Decodes these alone. Errors: those
  // of read.
  void read_outputs(std::int64_t expert, std::int64_t first, std::int64_t step, std::int64_t count, float* values) const;
  // Of mxfp4: its blocks and scales as they are.
  void read_mxfp4_bytes(std::vector<std::uint8_t>& blocks, std::vector<std::uint8_t>& scales) const;
  // Of int4: whether its scales are bf16 numbers, as int4 profiles have them; then its words and scales as they are. Errors: those of read.
  bool holds_int4() const { return as() == StoredAs::int4 && form_.scales_fit; }
  void read_int4(std::int64_t row, std::int64_t rows, std::uint32_t* words, Bf16* scales) const;
  // Where the codes and scales of fp8 and mxfp8 lie (checkpoint/stored_e4m3.h).
  StoredE4m3 e4m3() const { return {values_, scales_, form_, file_->columns()}; }
  // Of few bits but mxfp4: the types of its scales and, of int4, its shape in the file.
  SafetensorsType scale_type() const { return scales_.tensor->type; }
  SafetensorsType shape_type() const { return shape_type_; }

  // Whether this profile computes with other numbers than those stored, since it has no place for them.
  bool is_rounded(const Manifest& manifest, const Profile& profile) const { return form_.is_rounded(*file_, manifest, profile); }

 private:
  StoredTensor(const FileTensor& file, ModelFiles::Found values)
      : file_(&file), form_(form_of(file, StoredAs::numbers, values.tensor->type)), values_(values) {}
  void find_block_scales(const ModelFiles& files, const std::string& matrix, std::vector<std::int64_t> shape, std::set<std::string>& used);
  void find_packed(const ModelFiles& files, std::set<std::string>& used);
  void find_mxfp4(const ModelFiles& files, std::set<std::string>& used);
  void read_mxfp4(std::int64_t row, std::int64_t rows, float* values) const;
  void read_scales(std::int64_t first, std::span<float> scales) const;
  void scale_blocks(std::int64_t row, std::int64_t rows, float* values) const;

  const FileTensor* file_;
  StoredForm form_;
  ModelFiles::Found values_, scales_{};
  SafetensorsType shape_type_ = SafetensorsType::i64;
};

// Error corrupt_file where they differ.
void check_tensor_shape(const TensorFile& file, const SafetensorsTensor& tensor, const std::vector<std::int64_t>& shape);

}  // namespace lockstep
