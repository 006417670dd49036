#include "engine/sampling_rows.h"

#include "kernels/launch.h"

#include <algorithm>
#include <bit>

namespace lockstep {

SamplingRows::SamplingRows(Backend& backend, std::span<const SampledRow> sampled, const View& logits, int maximum_leaves)
    : backend_(backend), sampled_(sampled), logits_(logits), maximum_leaves_(maximum_leaves) {
  mask();
}

namespace {
// Tokens that a sequence knows before `known` without having accepted them (a draft) count as generated, for as long as this object lives.
class DraftAdjustments {
 public:
  DraftAdjustments(Sequence& s, std::int64_t known) : adjustments_(s.adjustments) {
    const std::int64_t accepted = s.accepted();
    if (known <= accepted) return;
    draft_ = std::span<const std::int32_t>(s.tokens).subspan(static_cast<std::size_t>(accepted), static_cast<std::size_t>(known - accepted));
    for (const std::int32_t token : draft_) adjustments_.accept(token);
  }
  ~DraftAdjustments() { adjustments_.truncate(draft_); }
  DraftAdjustments(const DraftAdjustments&) = delete;
  DraftAdjustments& operator=(const DraftAdjustments&) = delete;

 private:
  LogitAdjustments& adjustments_;
  std::span<const std::int32_t> draft_;
};
}  // namespace

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
  for (const SampledRow& row : sampled_) {
    const Sequence& s = *row.sequence;
    mask_rows_.push_back(s.sampling.constraint ? masks++ : -1);
    if (!s.sampling.constraint) continue;
    const auto of_row = std::span<const std::uint32_t>(s.mask).subspan(static_cast<std::size_t>(row.nth * width), static_cast<std::size_t>(width));
    for (std::uint32_t word : of_row) words.push_back(std::bit_cast<std::int32_t>(word));
  }
  if (masks == 0) return;
  mask_ = upload(words, width);
  mask_row_ = upload(mask_rows_);
}

void SamplingRows::attach(Sample& sample, const View& kept) {
  sample.mask = mask_;
  sample.mask_row = mask_row_;
  adjust(sample);
  std::vector<float> min_p;
  bool any = false;
  for (const SampledRow& row : sampled_) {
    min_p.push_back(row.sequence->sampling.min_p);
    any = any || row.sequence->sampling.min_p > 0;
  }
  if (any) sample.min_p = upload(min_p);
  if (std::all_of(sampled_.begin(), sampled_.end(), [](const SampledRow& row) { return row.kept < 0; })) return;
  std::vector<std::int32_t> kept_row;
  for (const SampledRow& row : sampled_) kept_row.push_back(static_cast<std::int32_t>(row.kept));
  sample.kept = kept;
  sample.kept_row = upload(kept_row);
}

void SamplingRows::adjust(Sample& sample) {
  std::vector<std::int32_t> row, begin{0}, adjusted_row, token, count, seen;
  std::vector<float> repetition, presence, frequency, bias;
  for (std::size_t i = 0; i < sampled_.size(); ++i) {
    Sequence& s = *sampled_[i].sequence;
    const DraftAdjustments draft(s, sampled_[i].known);
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
  for (std::size_t i = 0; i < sampled_.size(); ++i) {
    if (!sampled_[i].top) continue;
    row.push_back(static_cast<std::int32_t>(i));
    count.push_back(sampled_[i].sequence->sampling.top_logprobs);
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
