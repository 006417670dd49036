#include "checkpoint/stored_tensor.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "model/stored_names.h"
#include "numerics/int4_words.h"
#include "numerics/low_bit.h"
#include "numerics/mxfp4.h"

namespace lockstep {

namespace {
std::int64_t blocks_of(std::int64_t n, std::int64_t block) { return (n + block - 1) / block; }
std::int64_t int4_groups(std::int64_t inputs) { return (inputs + kQuantisedGroup - 1) / kQuantisedGroup; }

// For messages: what the same module has in the file by nearly the name that is missing.
std::string misspelt(const ModelFiles& files, const std::string& name) {
  std::vector<std::string> near;
  for (const std::string& other : files.names())
    if (other.starts_with(name.substr(0, name.rfind('.') + 1))) near.push_back(other);
  return did_you_mean(name, near);
}

// Whether f(scale) is true for all scales of a tensor; stops at the first for which it is not.
template <class F>
bool all_scales(const ModelFiles::Found& scales, const F& f) {
  constexpr std::int64_t kAtOnce = std::int64_t{1} << 16;
  std::vector<float> some;
  for (std::int64_t first = 0; first < scales.tensor->elements(); first += kAtOnce) {
    some.resize(static_cast<std::size_t>(std::min(kAtOnce, scales.tensor->elements() - first)));
    scales.file->read(*scales.tensor, some, first);
    if (!std::all_of(some.begin(), some.end(), f)) return false;
  }
  return true;
}

bool is_power_of_two(float x) { return x >= 0x1p-90f && (float_bits(x) & 0x7fffffu) == 0; }  // far above what quantisers make zeros of
bool is_bf16(float x) { return (float_bits(x) & 0xffffu) == 0; }
// 2^(byte - 127); 255 says NaN.
float e8m0_scale(std::uint8_t byte) {
  const std::uint32_t e = byte;
  return bits_float(e == 255 ? 0x7fc00000u : e == 0 ? 0x00400000u : e << 23);
}
}  // namespace

void check_tensor_shape(const TensorFile& file, const SafetensorsTensor& tensor, const std::vector<std::int64_t>& shape) {
  if (tensor.shape != shape)
    fail(ErrorCode::corrupt_file, "'{}': tensor {} has the shape {}, config.json says {}", file.label(), quoted_name(tensor.name), shape_text(tensor.shape),
         shape_text(shape));
}

std::optional<StoredTensor> StoredTensor::find(const ModelFiles& files, const Manifest& manifest, const FileTensor& file, std::set<std::string>& used) {
  if (const auto found = files.find(file.name)) {
    check_tensor_shape(*found.file, *found.tensor, file.shape);
    used.insert(file.name);
    StoredTensor stored(file, found);
    if (found.tensor->type == SafetensorsType::f8_e4m3) stored.find_block_scales(files, file.name, file.shape, used);
    return stored;
  }
  if (const auto found = files.find(Int4Names(file.name).numbers)) {
    StoredTensor stored(file, found);
    stored.find_packed(files, used);
    return stored;
  }
  if (const auto found = files.find(Mxfp4Names(file.name).blocks)) {
    StoredTensor stored(file, found);
    stored.find_mxfp4(files, used);
    return stored;
  }
  if (file.fused < 0) return {};
  const FusedTensor& fused = manifest.fused()[static_cast<std::size_t>(file.fused)];
  const auto found = files.find(fused.name);
  if (!found) return {};
  check_tensor_shape(*found.file, *found.tensor, fused.shape);
  used.insert(fused.name);
  StoredTensor stored(file, found);
  stored.form_.first_row = file.fused_begin / file.columns();
  stored.form_.matrix_rows = fused.shape[1];
  if (found.tensor->type == SafetensorsType::f8_e4m3) stored.find_block_scales(files, fused.name, fused.shape, used);
  return stored;
}

// `shape`: of the tensor with the numbers, a matrix or one for each expert.
void StoredTensor::find_block_scales(const ModelFiles& files, const std::string& matrix, std::vector<std::int64_t> shape, std::set<std::string>& used) {
  form_.as = StoredAs::fp8;
  const std::string name = block_scales_of(matrix);
  scales_ = files.find(name);
  if (!scales_ || shape.size() < 2)
    fail(ErrorCode::corrupt_file, "'{}': tensor {} has the dtype F8_E4M3, and there is no {} with the scales of a matrix{}", values_.file->label(),
         quoted_name(matrix), quoted_name(name), scales_ ? "" : misspelt(files, name));
  if (scales_.tensor->type == SafetensorsType::u8 || scales_.tensor->type == SafetensorsType::f8_e8m0) form_.as = StoredAs::mxfp8;
  form_.type = scales_.tensor->type;
  shape[shape.size() - 2] = blocks_of(shape[shape.size() - 2], form_.block_rows());
  shape[shape.size() - 1] = blocks_of(shape[shape.size() - 1], form_.block_columns());
  check_tensor_shape(*scales_.file, *scales_.tensor, shape);
  used.insert(name);
  if (as() == StoredAs::mxfp8) {
    std::vector<std::uint8_t> exponents(static_cast<std::size_t>(scales_.tensor->elements()));
    scales_.file->read_bytes(*scales_.tensor, exponents);
    form_.scales_fit = std::all_of(exponents.begin(), exponents.end(), [](std::uint8_t e) { return is_power_of_two(e8m0_scale(e)); });
    return;
  }
  form_.scales_fit = all_scales(scales_, is_power_of_two);
}

void StoredTensor::find_packed(const ModelFiles& files, std::set<std::string>& used) {
  form_.as = StoredAs::int4;
  const Int4Names names(file_->name);
  const std::string& label = values_.file->label();
  if (file_->shape.size() != 2) fail(ErrorCode::corrupt_file, "'{}': tensor {} is packed, and no matrix", label, quoted_name(file_->name));
  if (values_.tensor->type != SafetensorsType::i32)
    fail(ErrorCode::unsupported, "'{}': tensor {} has the dtype {}, allowed is I32: eight integers of 4 bits a word", label, quoted_name(names.numbers),
         safetensors_type_name(values_.tensor->type));
  const std::int64_t rows = file_->rows(), columns = file_->columns();
  check_tensor_shape(*values_.file, *values_.tensor, {rows, int4_words(columns)});
  const auto beside = [&](const std::string& name, std::string_view what) {
    const auto found = files.find(name);
    if (!found)
      fail(ErrorCode::corrupt_file, "'{}': tensor {} is packed, and there is no {} with its {}{}", label, quoted_name(names.numbers), quoted_name(name), what,
           misspelt(files, name));
    used.insert(name);
    return found;
  };
  scales_ = beside(names.scales, "scales");
  if (const std::vector<std::int64_t> shape{rows, int4_groups(columns)}; scales_.tensor->shape != shape)
    fail(ErrorCode::unsupported, "'{}': tensor {} has the shape {}, allowed is {}: a scale a group of {} inputs", label, quoted_name(names.scales),
         shape_text(scales_.tensor->shape), shape_text(shape), kQuantisedGroup);
  const auto shape = beside(names.shape, "shape");
  check_tensor_shape(*shape.file, *shape.tensor, {2});
  shape_type_ = shape.tensor->type;
  if (const std::vector<std::int64_t> said = shape.file->read_integers(*shape.tensor); said != file_->shape)
    fail(ErrorCode::corrupt_file, "'{}': tensor {} holds {}, config.json says {}", label, quoted_name(names.shape), shape_text(said), shape_text(file_->shape));
  used.insert(names.numbers);
  form_.type = scales_.tensor->type;
  form_.scales_fit = form_.type == SafetensorsType::bf16 || all_scales(scales_, is_bf16);
}

void StoredTensor::find_mxfp4(const ModelFiles& files, std::set<std::string>& used) {
  form_.as = StoredAs::mxfp4;
  const Mxfp4Names names(file_->name);
  const std::string& label = values_.file->label();
  if (file_->shape.size() != 3 || file_->shape[1] % kMxfp4Group)
    fail(ErrorCode::unsupported, "'{}': tensor {} of shape {} is stored as MXFP4, allowed are all experts in one tensor, with a multiple of {} inputs", label,
         quoted_name(file_->name), shape_text(file_->shape), kMxfp4Group);
  scales_ = files.find(names.scales);
  if (!scales_)
    fail(ErrorCode::corrupt_file, "'{}': tensor {} is in blocks, and there is no {} with their scales{}", label, quoted_name(names.blocks),
         quoted_name(names.scales), misspelt(files, names.scales));
  const std::vector<std::int64_t> groups{file_->shape[0], file_->shape[2], file_->shape[1] / kMxfp4Group};
  for (const ModelFiles::Found& found : {values_, scales_}) {
    std::vector<std::int64_t> shape = groups;
    if (found.tensor == values_.tensor) shape.push_back(kMxfp4Group / 2);
    check_tensor_shape(*found.file, *found.tensor, shape);
    if (found.tensor->type != SafetensorsType::u8)
      fail(ErrorCode::unsupported, "'{}': tensor {} has the dtype {}, allowed is U8", label, quoted_name(found.tensor->name),
           safetensors_type_name(found.tensor->type));
    used.insert(found.tensor->name);
  }
  std::vector<std::uint8_t> exponents(static_cast<std::size_t>(scales_.tensor->elements()));
  scales_.file->read_bytes(*scales_.tensor, exponents);
  form_.type = scales_.tensor->type;
  form_.scales_fit = std::all_of(exponents.begin(), exponents.end(), [](std::uint8_t e) { return e >= 127 - 90; });
}

void StoredTensor::read_scales(std::int64_t first, std::span<float> scales) const {
  if (as() == StoredAs::mxfp8) {
    std::vector<std::uint8_t> exponents(scales.size());
    scales_.file->read_bytes(*scales_.tensor, exponents, static_cast<std::uint64_t>(first));
    std::transform(exponents.begin(), exponents.end(), scales.begin(), e8m0_scale);
  } else {
    scales_.file->read(*scales_.tensor, scales, first);
  }
  const float most = as() == StoredAs::int4 ? 8.0f : kLargestE4m3;
  for (std::size_t i = 0; i < scales.size(); ++i)
    if (!std::isfinite(scales[i] * most))
      fail(ErrorCode::corrupt_file, "'{}': element {} of tensor {} is {}, allowed are finite numbers whose product with {} is finite", scales_.file->label(),
           first + static_cast<std::int64_t>(i), quoted_name(scales_.tensor->name), scales[i], most);
}

void StoredTensor::scale_blocks(std::int64_t row, std::int64_t rows, float* values) const {
  const std::int64_t columns = file_->columns(), first_row = form_.first_row, matrix_rows = form_.matrix_rows;
  const std::int64_t high = form_.block_rows(), wide = form_.block_columns(), across = blocks_of(columns, wide), down = blocks_of(matrix_rows, high);
  const auto block_row = [&](std::int64_t r) { return (first_row + r) / matrix_rows * down + (first_row + r) % matrix_rows / high; };
  const std::int64_t first = block_row(row);
  std::vector<float> scales(static_cast<std::size_t>((block_row(row + rows - 1) - first + 1) * across));
  read_scales(first * across, scales);
  for (std::int64_t n = 0; n < rows; ++n) {
    const float* of_row = scales.data() + (block_row(row + n) - first) * across;
    for (std::int64_t k = 0; k < columns; ++k) values[n * columns + k] *= of_row[k / wide];
  }
}

void StoredTensor::read_int4(std::int64_t row, std::int64_t rows, std::uint32_t* words, Bf16* scales) const {
  const std::int64_t row_words = int4_words(file_->columns()), groups = int4_groups(file_->columns());
  values_.file->read_bytes(*values_.tensor, {reinterpret_cast<std::uint8_t*>(words), static_cast<std::size_t>(rows * row_words * 4)},
                           static_cast<std::uint64_t>(row * row_words * 4));
  std::vector<float> widened(static_cast<std::size_t>(rows * groups));
  read_scales(row * groups, widened);
  std::transform(widened.begin(), widened.end(), scales, round_to_bf16);
}

void StoredTensor::read_mxfp4_bytes(std::vector<std::uint8_t>& blocks, std::vector<std::uint8_t>& scales) const {
  for (const auto& [found, bytes] : {std::pair{values_, &blocks}, std::pair{scales_, &scales}}) {
    bytes->resize(static_cast<std::size_t>(found.tensor->elements()));
    found.file->read_bytes(*found.tensor, *bytes);
  }
}

void StoredTensor::read_outputs(std::int64_t expert, std::int64_t first, std::int64_t step, std::int64_t count, float* values) const {
  const std::int64_t inputs = file_->shape[1], outputs = file_->shape[2], groups = inputs / kMxfp4Group;
  std::vector<std::uint8_t> blocks(static_cast<std::size_t>(groups * kMxfp4Group / 2)), scales(static_cast<std::size_t>(groups));
  for (std::int64_t i = 0; i < count; ++i, values += inputs) {
    const auto at = static_cast<std::uint64_t>((expert * outputs + first + i * step) * groups);
    values_.file->read_bytes(*values_.tensor, blocks, at * (kMxfp4Group / 2));
    scales_.file->read_bytes(*scales_.tensor, scales, at);
    decode_mxfp4(blocks.data(), scales.data(), groups, values);
    for (std::int64_t k = 0; k < inputs; ++k)
      if (!std::isfinite(values[k]))
        fail(ErrorCode::corrupt_file, "'{}': element {} of tensor {} is {}, its product with a number {}; allowed are finite numbers", scales_.file->label(),
             at + static_cast<std::uint64_t>(k / kMxfp4Group), quoted_name(scales_.tensor->name), scales[static_cast<std::size_t>(k / kMxfp4Group)], values[k]);
  }
}

// Rows of the file's tensor are inputs, those of the blocks outputs.
void StoredTensor::read_mxfp4(std::int64_t row, std::int64_t rows, float* values) const {
  const std::int64_t inputs = file_->shape[1], outputs = file_->shape[2];
  std::vector<float> numbers(static_cast<std::size_t>(inputs));
  for (const std::int64_t end = row + rows; row < end;) {
    const std::int64_t expert = row / inputs, first = row % inputs, count = std::min(inputs - first, end - row);
    for (std::int64_t n = 0; n < outputs; ++n) {
      read_outputs(expert, n, 1, 1, numbers.data());
      for (std::int64_t k = 0; k < count; ++k) values[k * outputs + n] = numbers[static_cast<std::size_t>(first + k)];
    }
    row += count;
    values += count * outputs;
  }
}

void StoredTensor::read(std::int64_t row, std::int64_t rows, float* values) const {
  const std::int64_t columns = file_->columns();
  if (as() == StoredAs::int4) {
    const std::int64_t row_words = int4_words(columns), groups = int4_groups(columns);
    std::vector<std::uint32_t> words(static_cast<std::size_t>(rows * row_words));
    values_.file->read_bytes(*values_.tensor, {reinterpret_cast<std::uint8_t*>(words.data()), words.size() * 4},
                             static_cast<std::uint64_t>(row * row_words * 4));
    std::vector<float> scales(static_cast<std::size_t>(rows * groups));
    read_scales(row * groups, scales);
    for (std::int64_t n = 0; n < rows; ++n)
      for (std::int64_t k = 0; k < columns; ++k) {
        const auto nibble = static_cast<int>(words[static_cast<std::size_t>(n * row_words + k / 8)] >> (k % 8 * 4) & 15u);
        values[n * columns + k] = static_cast<float>(nibble - 8) * scales[static_cast<std::size_t>(n * groups + k / kQuantisedGroup)];
      }
    return;
  }
  if (as() == StoredAs::mxfp4) return read_mxfp4(row, rows, values);
  const std::int64_t first = (form_.first_row + row) * columns;
  values_.file->read(*values_.tensor, {values, static_cast<std::size_t>(rows * columns)}, first);
  if (as() == StoredAs::fp8 || as() == StoredAs::mxfp8) scale_blocks(row, rows, values);
  for (std::int64_t i = 0; i < rows * columns; ++i)
    if (!std::isfinite(values[i]))
      fail(ErrorCode::corrupt_file, "'{}': element {} of tensor {} is {}, allowed are finite numbers", values_.file->label(), first + i,
           quoted_name(values_.tensor->name), values[i]);
}

}  // namespace lockstep
