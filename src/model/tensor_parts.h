// A file's tensor as row-major bits in parts of some thousand elements, from the compute copies that it fills: whoever passes over a tensor needs no
// image of it. A part holds whole rows, and a multiple of 256 elements unless it is the last.
//   const TensorParts parts(manifest, file, DType::bf16);
//   for (std::size_t i = 0; i < parts.count(); ++i) parts.read(device, buffers, i, to, scratch), to += parts.elements(i) * 2;
// The device's thread; where is_readable(device) (tensor/readable_bytes.h), any thread while that one waits.
#pragma once
#include <algorithm>
#include <vector>

#include "model/weights.h"

namespace lockstep {

class TensorParts {
 public:
  static constexpr std::int64_t kElements = std::int64_t{1} << 16;  // which stay in a processor's own cache
  // `type`: f32 or bf16, in which the bits are read; compute copies of the other are widened or rounded. `most`: elements of a part, as far as its rows
  // allow. Both outlive it.
  TensorParts(const Manifest& manifest, const FileTensor& file, DType type, std::int64_t most = kElements);
  std::size_t count() const { return static_cast<std::size_t>((rows_ + part_rows_ - 1) / part_rows_); }
  std::int64_t first(std::size_t part) const { return static_cast<std::int64_t>(part) * part_rows_ * columns_; }  // element
  std::int64_t elements(std::size_t part) const;
  std::int64_t most_elements() const { return std::min(part_rows_, rows_) * columns_; }  // of a part
  int width() const { return width_; }                                                   // bytes of an element
  // `buffers`: the compute copies, by ParameterId; none of the tensor's is quantised.
  void read(Device& device, const std::vector<Buffer>& buffers, std::size_t part, void* to, std::vector<char>& scratch) const;

 private:
  void read_piece(Device& device, const Buffer& buffer, const Piece& piece, std::int64_t row, std::int64_t rows, void* to, std::vector<char>& scratch) const;
  const Manifest& manifest_;
  const FileTensor& file_;
  const DType type_;
  const int width_;
  const std::int64_t rows_, columns_;
  std::int64_t part_rows_ = 1;
};

}  // namespace lockstep
