#include "engine/step_record.h"

#include <algorithm>
#include <bit>

namespace lockstep {

StepRecord::StepRecord(Device& device, const StepWants& wants)
    : samples_(wants.rows(Column::sampled)),
      scored_(wants.cells(Column::scored)),
      drawn_(wants.cells(Column::drawn)),
      sampled_top_(wants.rows(Column::sampled_top)),
      scored_top_(wants.rows(Column::scored_top)),
      top_(std::max(wants.widest(Column::sampled_top), wants.widest(Column::scored_top))),
      experts_(wants.rows(Column::experts)),
      expert_width_(wants.widest(Column::experts)),
      kept_(wants.rows(Column::kept)),
      kept_width_(wants.widest(Column::kept)),
      traced_(device.traced()) {
  words_ = device.allocate_zero(DType::i32, 1, integer_count() + (traced_ ? 0 : number_count()), MemoryCategory::activations);
  if (traced_) numbers_ = device.allocate(DType::f32, 1, number_count(), MemoryCategory::activations);
}

View StepRecord::integers(std::int64_t begin, std::int64_t rows, std::int64_t cols) const {
  return words_.view().column_range(begin, rows * cols).reshape(rows, cols);
}

View StepRecord::numbers(std::int64_t begin, std::int64_t rows, std::int64_t cols) const {
  if (traced_) return numbers_.view().column_range(begin, rows * cols).reshape(rows, cols);
  View v = integers(integer_count() + begin, rows, cols);
  v.dtype = DType::f32;
  return v;
}

void StepRecord::read(Stream& stream, StepResult& result) const {
  const std::vector<std::int32_t> w = stream.read_ints(words_.view()).get();
  std::vector<float> n;
  if (traced_) n = stream.read(numbers_.view()).get();
  const auto integer = [&](std::int64_t i) { return w[static_cast<std::size_t>(i)]; };
  const auto number = [&](std::int64_t i) { return traced_ ? n[static_cast<std::size_t>(i)] : std::bit_cast<float>(integer(integer_count() + i)); };
  result.all_sampled.resize(static_cast<std::size_t>(samples_));
  for (std::int64_t i = 0; i < samples_; ++i)
    result.all_sampled[static_cast<std::size_t>(i)] = {integer(i), integer(samples_ + i), number(i), number(samples_ + i)};
  result.all_scored.resize(static_cast<std::size_t>(scored_));
  for (std::int64_t i = 0; i < scored_; ++i) result.all_scored[static_cast<std::size_t>(i)] = number(2 * samples_ + i);
  std::int64_t id_at = 2 * samples_, logprob_at = 2 * samples_ + scored_;
  const auto tops = [&](std::int64_t rows, std::vector<StepResult::Top>& out) {
    out.assign(static_cast<std::size_t>(rows), {});
    for (StepResult::Top& row : out)
      for (std::int64_t i = 0; i < top_; ++i, ++id_at, ++logprob_at)
        if (const std::int32_t id = integer(id_at); id >= 0) row.push_back({id, number(logprob_at)});
  };
  tops(sampled_top_, result.all_sampled_top);
  tops(scored_top_, result.all_scored_top);
  result.all_drawn.resize(static_cast<std::size_t>(drawn_));
  for (TokenLogprob& one : result.all_drawn) one = {integer(id_at++), number(logprob_at++)};
  result.all_experts.assign(static_cast<std::size_t>(experts_), {});
  for (StepResult::Experts& row : result.all_experts)
    for (std::int64_t i = 0; i < expert_width_; ++i) row.push_back(static_cast<std::uint16_t>(integer(id_at++)));
  result.all_kept.assign(static_cast<std::size_t>(kept_), {});
  for (KeptTokens& row : result.all_kept) {
    const auto at = w.begin() + id_at;
    id_at += kept_width_;
    if (at[0] == 0) continue;
    row.order = static_cast<KeptTokens::Order>(at[0]);
    row.count = at[1];
    row.words.assign(at + 2, at + 2 + std::min<std::int64_t>(row.count, kept_width_ - 2));
  }
}

}  // namespace lockstep
