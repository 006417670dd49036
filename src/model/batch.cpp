#include "model/batch.h"

#include <algorithm>

#include "base/error.h"
#include "model/expert_shape.h"
#include "numerics/form.h"

namespace lockstep {

Batch::Batch(Backend& backend, const std::vector<SequenceSlice>& slices, std::int64_t page_size, bool training) {
  std::vector<std::int32_t> tokens, positions, sequences, segments, begins{0};
  std::vector<std::int32_t> table(slices.size());
  std::size_t most_pages = 0;
  std::int32_t segment = -1;
  row_begin_.push_back(0);
  for (std::size_t s = 0; s < slices.size(); ++s) {
    const SequenceSlice& slice = slices[s];
    const auto length = static_cast<std::int64_t>(slice.tokens.size());
    if (static_cast<std::int64_t>(slice.pages.size()) * page_size < slice.begin + length)
      fail(ErrorCode::internal, "a sequence of {} positions has {} pages of {}", slice.begin + length, slice.pages.size(), page_size);
    if (training && slice.begin != 0 && slice.begin != slice.shared && !slice.piece)
      fail(ErrorCode::internal, "a training sequence starts at position {}", slice.begin);
    table[s] = static_cast<std::int32_t>(table.size());
    table.insert(table.end(), slice.pages.begin(), slice.pages.end());
    most_pages = std::max(most_pages, slice.pages.size());
    for (std::int64_t i = 0; i < length; ++i) {
      const std::int64_t position = slice.begin + i;
      if (i == 0 || position % kGradientBlock == 0) {
        ++segment;
        if (training) segment_begin_.push_back(static_cast<std::int64_t>(tokens.size()));
      }
      tokens.push_back(slice.tokens[static_cast<std::size_t>(i)]);
      positions.push_back(static_cast<std::int32_t>(position));
      sequences.push_back(static_cast<std::int32_t>(s));
      segments.push_back(segment);
    }
    longest_ = std::max(longest_, slice.begin + length);
    row_begin_.push_back(static_cast<std::int64_t>(tokens.size()));
    begins.push_back(static_cast<std::int32_t>(tokens.size()));
  }
  count_ = tape_count_ = static_cast<std::int64_t>(tokens.size());
  rows_.token = upload(backend, tokens);
  tokens_ = std::move(tokens);
  rows_.position = upload(backend, positions);
  rows_.sequence = upload(backend, sequences);
  rows_.page_table = upload(backend, table);
  rows_.page_size = static_cast<std::int32_t>(page_size);
  rows_.longest = static_cast<std::int64_t>(most_pages) * page_size;
  if (training) {
    rows_.segment = upload(backend, segments);
    rows_.sequence_begin = upload(backend, begins);
    const auto any = [&](auto kind) { return std::any_of(slices.begin(), slices.end(), kind); };
    if (any([](const SequenceSlice& s) { return s.begin > 0 && !s.piece; })) sum_keys(backend, slices);
    tape_rows_ = rows_;
    if (any([](const SequenceSlice& s) { return s.begin == 0 && s.shared > 0; })) share_rows(backend, slices);
  }
  upload_experts(backend, slices);
}

Batch::Batch(const Batch& whole, std::int64_t begin, std::int64_t count) : count_(count), tape_count_(count), longest_(whole.longest_) {
  const auto part = [&](const View& all) { return all ? all.row_range(begin, count) : View{}; };
  rows_.token = part(whole.rows_.token), rows_.position = part(whole.rows_.position), rows_.sequence = part(whole.rows_.sequence);
  rows_.segment = part(whole.rows_.segment);
  tape_rows_ = rows_;
  experts_ = part(whole.experts_);
}

std::vector<std::int64_t> Batch::tiles(std::int64_t most) const {
  std::vector<std::int64_t> bounds{0};
  std::int64_t end = 0;  // of the segments so far
  for (std::size_t s = 0; s < segment_begin_.size(); ++s) {
    const std::int64_t next = s + 1 < segment_begin_.size() ? segment_begin_[s + 1] : tape_count_;
    if (next - bounds.back() > most && end > bounds.back()) bounds.push_back(end);
    end = next;
  }
  bounds.push_back(tape_count_);
  return bounds;
}

View Batch::upload(Backend& backend, const std::vector<std::int32_t>& values, std::int64_t cols) {
  buffers_.push_back(backend.device().upload(values, static_cast<std::int64_t>(values.size()) / cols, cols, MemoryCategory::activations));
  return buffers_.back().view();
}

// The forward computes only the rows that no other sequence computes.
void Batch::share_rows(Backend& backend, const std::vector<SequenceSlice>& slices) {
  std::vector<std::int32_t> tokens, positions, sequences, source;
  std::vector<std::int64_t>& begin = forward_begin_;
  for (std::size_t s = 0; s < slices.size(); ++s) {
    begin.push_back(static_cast<std::int64_t>(tokens.size()));
    for (std::int64_t p = slices[s].shared; p < static_cast<std::int64_t>(slices[s].tokens.size()); ++p) {
      tokens.push_back(slices[s].tokens[static_cast<std::size_t>(p)]);
      positions.push_back(static_cast<std::int32_t>(p));
      sequences.push_back(static_cast<std::int32_t>(s));
    }
  }
  for (std::size_t s = 0; s < slices.size(); ++s)
    for (std::int64_t p = 0; p < static_cast<std::int64_t>(slices[s].tokens.size()); ++p) {
      std::size_t from = s;
      while (p < slices[from].shared) from = slices[from].owner;
      source.push_back(static_cast<std::int32_t>(begin[from] + p - slices[from].shared));
    }
  count_ = static_cast<std::int64_t>(tokens.size());
  begin.push_back(count_);
  rows_.token = upload(backend, tokens);
  rows_.position = upload(backend, positions);
  rows_.sequence = upload(backend, sequences);
  rows_.segment = rows_.sequence_begin = View();
  source_ = upload(backend, source);
  tokens_ = std::move(tokens);
}

// Each tape row's row in the forward: a whole slice's shared rows are its owner's.
void Batch::upload_experts(Backend& backend, const std::vector<SequenceSlice>& slices) {
  std::size_t width = 0;
  for (const SequenceSlice& slice : slices)
    if (!slice.experts.empty()) width = slice.experts.size() / std::max<std::size_t>(slice.tokens.size(), 1);
  if (width == 0) return;
  std::vector<std::int32_t> experts;
  experts.reserve(static_cast<std::size_t>(count_) * width);
  for (const SequenceSlice& slice : slices) {
    const std::size_t skipped = source_ ? static_cast<std::size_t>(slice.shared) : 0, rows = slice.tokens.size();
    if (!slice.experts.empty() && slice.experts.size() != rows * width)
      fail(ErrorCode::internal, "a slice of {} rows has {} numbers of experts, and another {} a row", rows, slice.experts.size(), width);
    if (slice.experts.empty()) experts.resize(experts.size() + (rows - skipped) * width, kOwnExperts);
    else experts.insert(experts.end(), slice.experts.begin() + static_cast<std::ptrdiff_t>(skipped * width), slice.experts.end());
  }
  experts_ = upload(backend, experts, static_cast<std::int64_t>(width));
}

// A sequence that continues another has gradients of all keys it attends to; those of shared positions are added to the owner's.
void Batch::sum_keys(Backend& backend, const std::vector<SequenceSlice>& slices) {
  std::vector<std::int32_t> first, key_begin{0};
  std::vector<std::vector<std::int32_t>> of_row(static_cast<std::size_t>(count_));
  for (std::size_t s = 0; s < slices.size(); ++s) {
    const SequenceSlice& slice = slices[s];
    const auto length = static_cast<std::int64_t>(slice.tokens.size());
    first.push_back(static_cast<std::int32_t>(slice.begin));
    const std::int64_t keys = length > 0 ? slice.begin + length : 0;  // without rows it looks at no key
    for (std::int64_t p = 0; p < keys; ++p) {
      const std::int64_t row = p < slice.begin ? row_begin_[slice.owner] + p : row_begin_[s] + p - slice.begin;
      of_row[static_cast<std::size_t>(row)].push_back(key_begin.back() + static_cast<std::int32_t>(p));
    }
    key_begin.push_back(key_begin.back() + static_cast<std::int32_t>(keys));
  }
  std::vector<std::int32_t> begin{0}, row;
  for (const std::vector<std::int32_t>& keys : of_row) {
    row.insert(row.end(), keys.begin(), keys.end());
    begin.push_back(static_cast<std::int32_t>(row.size()));
  }
  rows_.first = upload(backend, first);
  rows_.key_begin = upload(backend, key_begin);
  key_sums_ = {key_begin.back(), upload(backend, begin), upload(backend, row)};
}

}  // namespace lockstep
