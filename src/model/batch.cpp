#include "model/batch.h"

#include <algorithm>

#include "base/error.h"
#include "numerics/form.h"

namespace lockstep {

Batch::Batch(Backend& backend, const std::vector<SequenceSlice>& slices, std::int64_t page_size, bool training) {
  std::vector<std::int32_t> tokens, positions, sequences, segments, begins{0};
  std::size_t table_width = 1;
  for (const SequenceSlice& slice : slices) table_width = std::max(table_width, slice.pages.size());
  std::vector<std::int32_t> table(slices.size() * table_width, 0);
  std::int32_t segment = -1;
  row_begin_.push_back(0);
  for (std::size_t s = 0; s < slices.size(); ++s) {
    const SequenceSlice& slice = slices[s];
    const auto length = static_cast<std::int64_t>(slice.tokens.size());
    if (static_cast<std::int64_t>(slice.pages.size()) * page_size < slice.begin + length)
      fail(ErrorCode::internal, "a sequence of {} positions has {} pages of {}", slice.begin + length, slice.pages.size(), page_size);
    if (training && slice.begin != 0) fail(ErrorCode::internal, "a training sequence starts at position {}", slice.begin);
    std::copy(slice.pages.begin(), slice.pages.end(), table.begin() + static_cast<std::ptrdiff_t>(s * table_width));
    for (std::int64_t i = 0; i < length; ++i) {
      const std::int64_t position = slice.begin + i;
      if (i == 0 || position % kGradientBlock == 0) ++segment;
      tokens.push_back(slice.tokens[static_cast<std::size_t>(i)]);
      positions.push_back(static_cast<std::int32_t>(position));
      sequences.push_back(static_cast<std::int32_t>(s));
      segments.push_back(segment);
    }
    longest_ = std::max(longest_, slice.begin + length);
    row_begin_.push_back(static_cast<std::int64_t>(tokens.size()));
    begins.push_back(static_cast<std::int32_t>(tokens.size()));
  }
  count_ = static_cast<std::int64_t>(tokens.size());
  const auto upload = [&](const std::vector<std::int32_t>& values, std::int64_t rows, std::int64_t cols) {
    buffers_.push_back(backend.device().upload(values, rows, cols, MemoryCategory::activations));
    return buffers_.back().view();
  };
  rows_.token = upload(tokens, count_, 1);
  tokens_ = std::move(tokens);
  rows_.position = upload(positions, count_, 1);
  rows_.sequence = upload(sequences, count_, 1);
  rows_.page_table = upload(table, static_cast<std::int64_t>(slices.size()), static_cast<std::int64_t>(table_width));
  rows_.page_size = static_cast<std::int32_t>(page_size);
  if (training) {
    rows_.segment = upload(segments, count_, 1);
    rows_.sequence_begin = upload(begins, static_cast<std::int64_t>(begins.size()), 1);
  }
}

}  // namespace lockstep
