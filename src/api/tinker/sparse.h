// Converts sparse matrices of the wire (compressed rows) to dense ones, with 0 for what is not listed. Pure function.
//   const std::vector<float> dense = dense_of_csr<float>({5, 7}, {0, 1, 2}, {2, 0}, {2, 3}, "logprobs");  // {0, 0, 5, 7, 0, 0}
#pragma once
#include <fmt/ranges.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/client_work.h"
#include "base/error.h"

namespace lockstep {

// Limits the elements of one message's sparse tensors once they are dense: a few bytes can claim any shape.
class DenseRoom {
 public:
  void take(std::int64_t elements, const std::string& where) {
    if (elements > left_)
      fail(ErrorCode::invalid_argument, "{} is sparse, and with it the sparse tensors of the message have more than {} elements; allowed are at most that",
           where, kMost);
    left_ -= elements;
  }

 private:
  static constexpr std::int64_t kMost = std::int64_t{1} << 26;
  std::int64_t left_ = kMost;
};

// `where`: the tensor's name in errors.
template <class T>
std::vector<T> dense_of_csr(const std::vector<T>& values, const std::vector<std::int64_t>& row_begin, const std::vector<std::int64_t>& column,
                            const std::vector<std::int64_t>& shape, const std::string& where) {
  if (shape.size() != 2) fail(ErrorCode::invalid_argument, "{} is sparse and has {} dimensions, allowed are 2", where, shape.size());
  const std::int64_t rows = shape[0], columns = shape[1];
  if (static_cast<std::int64_t>(row_begin.size()) != rows + 1 || row_begin.front() != 0 || row_begin.back() != static_cast<std::int64_t>(values.size()) ||
      column.size() != values.size())
    fail(ErrorCode::invalid_argument, "{} has {} crow_indices, {} col_indices and {} values, which make no matrix of {} rows", where, row_begin.size(),
         column.size(), values.size(), rows);
  ClientWork::take(static_cast<std::size_t>(rows * columns) * sizeof(T));
  std::vector<T> dense(static_cast<std::size_t>(rows * columns), T(0));
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::int64_t begin = row_begin[static_cast<std::size_t>(r)], end = row_begin[static_cast<std::size_t>(r) + 1];
    if (begin > end || begin < 0 || end > static_cast<std::int64_t>(values.size()))
      fail(ErrorCode::invalid_argument, "{}.crow_indices does not ascend at row {}", where, r);
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t c = column[static_cast<std::size_t>(i)];
      if (c < 0 || c >= columns) fail(ErrorCode::invalid_argument, "{}.col_indices[{}] is {}, allowed is 0 to {}", where, i, c, columns - 1);
      dense[static_cast<std::size_t>(r * columns + c)] = values[static_cast<std::size_t>(i)];
    }
  }
  return dense;
}

// The number of elements of a shape that a message claims. Error invalid_argument: a negative dimension, or more elements than are allowed.
inline std::int64_t checked_size(const std::vector<std::int64_t>& shape, const std::string& where) {
  constexpr std::int64_t kMostElements = std::int64_t{1} << 28;
  std::int64_t size = 1;
  if (shape.empty() || shape.size() > 2) fail(ErrorCode::invalid_argument, "{} has {} dimensions, allowed are 1 and 2", where, shape.size());
  for (const std::int64_t n : shape) {
    if (n < 0 || n > kMostElements || (n > 0 && size > kMostElements / n))
      fail(ErrorCode::invalid_argument, "{} has a shape of too many elements, allowed are at most {}", where, kMostElements);
    size *= n;
  }
  return size;
}

// Gives a tensor of `size` values without a shape the shape {size}; one with a shape must have as many values as that. Error invalid_argument.
inline void settle_shape(std::vector<std::int64_t>& shape, std::size_t size, const std::string& where) {
  if (shape.empty()) shape = {static_cast<std::int64_t>(size)};
  if (checked_size(shape, where) != static_cast<std::int64_t>(size))
    fail(ErrorCode::invalid_argument, "{} has {} values and shape [{}]", where, size, fmt::join(shape, ", "));
}

}  // namespace lockstep
