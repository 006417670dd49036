#include "engine/sampling_rows.h"

#include "kernels/launch.h"

#include <bit>

namespace lockstep {

SamplingRows::SamplingRows(Backend& backend, std::span<Sequence* const> sequences, const View& logits,
                           int maximum_leaves)
    : backend_(backend), sequences_(sequences), logits_(logits), maximum_leaves_(maximum_leaves) {
  mask();
}

View SamplingRows::upload(const std::vector<std::int32_t>& values, std::int64_t cols) {
  const auto n = static_cast<std::int64_t>(values.size());
  buffers_.push_back(backend_.device().upload(values, n / cols, cols, MemoryCategory::activations));
  return buffers_.back().view();
}

View SamplingRows::upload(const std::vector<float>& values) {
  const auto n = static_cast<std::int64_t>(values.size());
  buffers_.push_back(backend_.device().upload(values, n, 1, MemoryCategory::activations));
  return buffers_.back().view();
}

void SamplingRows::mask() {
  const std::int64_t width = (logits_.cols + 31) / 32;
  std::vector<std::int32_t> words;
  std::int32_t masks = 0;
  for (const Sequence* s : sequences_) {
    mask_rows_.push_back(s->sampling.constraint ? masks++ : -1);
    if (s->sampling.constraint)
      for (std::uint32_t word : s->mask) words.push_back(std::bit_cast<std::int32_t>(word));
  }
  if (masks == 0) return;
  mask_ = upload(words, width);
  mask_row_ = upload(mask_rows_);
}

void SamplingRows::attach(Sample& sample) {
  sample.mask = mask_;
  sample.mask_row = mask_row_;
  adjust(sample);
  std::vector<float> min_p;
  bool any = false;
  for (const Sequence* s : sequences_) {
    min_p.push_back(s->sampling.min_p);
    any = any || s->sampling.min_p > 0;
  }
  if (any) sample.min_p = upload(min_p);
}

void SamplingRows::adjust(Sample& sample) {
  std::vector<std::int32_t> row, begin{0}, adjusted_row, token, count, seen;
  std::vector<float> repetition, presence, frequency, bias;
  for (std::size_t i = 0; i < sequences_.size(); ++i) {
    const Sequence& s = *sequences_[i];
    const std::vector<LogitAdjustments::Entry>& entries = s.adjustments.entries();
    adjusted_row.push_back(entries.empty() ? -1 : static_cast<std::int32_t>(row.size()));
    if (entries.empty()) continue;
    row.push_back(static_cast<std::int32_t>(i));
    repetition.push_back(s.sampling.repetition_penalty);
    presence.push_back(s.sampling.presence_penalty);
    frequency.push_back(s.sampling.frequency_penalty);
    for (const LogitAdjustments::Entry& e : entries) {
      token.push_back(e.token);
      count.push_back(e.count);
      seen.push_back(e.seen);
      bias.push_back(e.bias);
    }
    begin.push_back(static_cast<std::int32_t>(token.size()));
  }
  if (row.empty()) return;
  AdjustLogits op;
  const auto rows = static_cast<std::int64_t>(row.size());
  buffers_.push_back(backend_.device().allocate(DType::f32, rows, logits_.cols, MemoryCategory::workspace));
  op.y = buffers_.back().view();
  op.logits = logits_;
  op.row = upload(row);
  op.begin = upload(begin);
  op.repetition = upload(repetition);
  op.presence = upload(presence);
  op.frequency = upload(frequency);
  op.token = upload(token);
  op.count = upload(count);
  op.seen = upload(seen);
  op.bias = upload(bias);
  backend_.launch(&KernelTable::adjust_logits, op);
  sample.adjusted = op.y;
  sample.adjusted_row = upload(adjusted_row);
}

std::int64_t SamplingRows::likeliest(const View& id, const View& logprob, std::int64_t begin) {
  std::vector<std::int32_t> row, count, mask_row;
  for (std::size_t i = 0; i < sequences_.size(); ++i) {
    if (sequences_[i]->sampling.top_logprobs == 0) continue;
    row.push_back(static_cast<std::int32_t>(i));
    count.push_back(sequences_[i]->sampling.top_logprobs);
    mask_row.push_back(mask_rows_[i]);
  }
  const auto rows = static_cast<std::int64_t>(row.size());
  if (rows == 0) return 0;
  TopTokens op;
  op.id = id.row_range(begin, rows);
  op.logprob = logprob.row_range(begin, rows);
  op.logits = logits_;
  op.row = upload(row);
  op.count = upload(count);
  op.mask = mask_;
  if (mask_) op.mask_row = upload(mask_row);
  op.maximum_leaves = maximum_leaves_;
  backend_.launch(&KernelTable::top_tokens, op);
  return rows;
}

}  // namespace lockstep
