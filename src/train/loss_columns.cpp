#include "train/loss_columns.h"

#include <algorithm>

#include "base/error.h"
#include "numerics/exact_sum.h"
#include "train/teacher_head.h"
#include "train/value_loss.h"

namespace lockstep {

namespace {
bool trains(const TrainSequence& d) {
  for (std::size_t i = 0; i < d.targets.size(); ++i)
    if (d.targets[i] >= 0 && d.weights[i] != 0) return true;
  return false;
}
void add_weights(const TrainSequence& d, ExactSum& sum) {
  for (std::size_t i = 0; i < d.targets.size(); ++i)
    if (d.targets[i] >= 0) sum.add(static_cast<double>(d.weights[i]));
}
// Plain reinforce does not use old log-probabilities, so they may be missing.
bool anchored_nowhere(const LossOptions& loss) {
  return loss.kind == LossKind::reinforce && loss.parameters.anchor == RatioAnchor::sampler && loss.parameters.kl != KlEstimator::unbiased;
}
}  // namespace

double loss_normaliser(const std::vector<TrainSequence>& data, const LossOptions& loss) {
  if (loss.normaliser > 0) return loss.normaliser;
  if (loss.averaging == LossAveraging::sum) return 1;
  if (loss.averaging != LossAveraging::token_mean) return static_cast<double>(std::count_if(data.begin(), data.end(), trains));
  ExactSum total;  // whatever the order of the data
  for (const TrainSequence& d : data) add_weights(d, total);
  const double weights = total.total();
  if (!(weights > 0) && std::any_of(data.begin(), data.end(), trains))
    fail(ErrorCode::invalid_argument, "the weights sum to {}, which averaging token_mean divides by; allowed are sums above 0, or averaging sum", weights);
  return weights;
}

double sequence_divisor(const TrainSequence& d, const LossOptions& loss) {
  if (loss.averaging == LossAveraging::sequence_token_sum_norm) return loss.length_norm;
  if (loss.averaging != LossAveraging::sequence_token_mean || !trains(d)) return 1;
  ExactSum own;
  add_weights(d, own);
  return own.total();
}

SequenceRatio sequence_ratio(const TrainSequence& d, const std::vector<float>& logprobs, const std::vector<float>& anchor) {
  ExactSum sum;
  SequenceRatio ratio;
  for (std::size_t i = 0; i < d.targets.size(); ++i) {
    if (d.targets[i] < 0 || (d.ratio_mask.empty() ? d.weights[i] : d.ratio_mask[i]) == 0) continue;
    sum.add(static_cast<double>(logprobs[i]) - static_cast<double>(anchor[i]));
    ++ratio.count;
  }
  ratio.sum = sum.total();
  return ratio;
}

LossColumns::LossColumns(Device& device, const std::vector<TrainSequence>& data, const RowPlan& plan, const LossOptions& loss, double normaliser,
                         std::int64_t vocabulary)
    : device_(device), data_(data), plan_(plan), loss_(loss) {
  for (const RowPlan::Origin& origin : plan.origins) width_ = std::max(width_, data[origin.sequence].targets_per_row);
  for (std::size_t s = 0; s < plan.slices.size(); ++s) {
    const TrainSequence& d = data[plan.origins[s].sequence];
    rows_ += static_cast<std::int64_t>(plan.slices[s].tokens.size());
    const auto own = static_cast<std::size_t>(d.targets_per_row);
    for (std::size_t i = 0; i < plan.slices[s].tokens.size(); ++i) {
      const std::size_t at = (static_cast<std::size_t>(plan.slices[s].begin) + i) * own;
      for (std::size_t k = 0; k < static_cast<std::size_t>(width_); ++k) targets_.push_back(k < own && !plan.origins[s].prefix ? d.targets[at + k] : -1);
    }
  }
  target_ = device.upload(targets_, rows_, width_, MemoryCategory::activations);
  make_distribution(vocabulary);
  objective_.kind = loss.kind;
  objective_.parameters = loss.parameters;
  if (loss.kind == LossKind::none) return;
  LossParameters& p = objective_.parameters;
  if (p.kl_coefficient == 0) p.kl = KlEstimator::none;
  std::map<std::size_t, std::vector<float>> weights;
  for (const RowPlan::Origin& origin : plan.origins) {
    if (origin.prefix) continue;
    const TrainSequence& d = data[origin.sequence];
    const double divisor = normaliser > 0 ? normaliser * sequence_divisor(d, loss) : 1.0;  // 0: every weight is 0
    for (const float w : d.weights) weights[origin.sequence].push_back(static_cast<float>(static_cast<double>(w) / divisor));
  }
  column(&Objective::weight, [&](std::size_t s) -> const std::vector<float>& { return weights[s]; });
  if (loss.kind == LossKind::divergence) make_teacher();
  if (!has_marks(loss.kind)) return;
  const auto of = [&](std::vector<float> TrainSequence::*member) {
    return [&data, member](std::size_t s) -> const std::vector<float>& { return data[s].*member; };
  };
  if (anchored_nowhere(loss)) p.anchor = RatioAnchor::current;
  column(&Objective::advantage, of(&TrainSequence::advantages));
  if (loss.kind == LossKind::value) {  // returns, and the values before
    if (value_clip(loss) > 0) column(&Objective::old_logprob, of(&TrainSequence::old_logprobs));
    return;
  }
  if (p.anchor == RatioAnchor::sampler || p.correction != Correction::none) column(&Objective::old_logprob, of(&TrainSequence::old_logprobs));
  if (p.anchor == RatioAnchor::proximal) column(&Objective::proximal, of(&TrainSequence::proximal_logprobs));
  if (p.kl != KlEstimator::none) column(&Objective::reference, of(&TrainSequence::reference_logprobs));
  const auto any = [&](std::vector<float> TrainSequence::*member) {
    return std::any_of(plan.origins.begin(), plan.origins.end(), [&](const RowPlan::Origin& o) { return !(data[o.sequence].*member).empty(); });
  };
  // Sequences without bounds of their own have the loss's.
  const auto bounds = [&](View Objective::*view, std::vector<float> TrainSequence::*member, float otherwise) {
    if (!any(member)) return;
    std::map<std::size_t, std::vector<float>> own;
    column(view, [&](std::size_t s) -> const std::vector<float>& {
      if (!(data[s].*member).empty()) return data[s].*member;
      return own[s] = std::vector<float>(data[s].targets.size(), otherwise);
    });
  };
  bounds(&Objective::clip_low, &TrainSequence::clip_low, p.clip_low);
  bounds(&Objective::clip_high, &TrainSequence::clip_high, p.clip_high);
  ratios_of_sequences_ = loss.ratio_level != RatioLevel::token || (p.correction != Correction::none && loss.correction_level != RatioLevel::token);
}

// Rows of a declared prefix have no target, so their states are not looked at.
void LossColumns::make_teacher() {
  if (rows_ == 0) return;
  const TeacherHead& head = *data_[plan_.origins.front().sequence].teacher;
  const auto width = static_cast<std::size_t>(head.w.inputs);
  std::vector<float> states;
  states.reserve(static_cast<std::size_t>(rows_) * width);
  for (std::size_t s = 0; s < plan_.slices.size(); ++s) {
    const std::vector<float>& all = data_[plan_.origins[s].sequence].teacher_states;
    const auto first = all.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(plan_.slices[s].begin) * width);
    states.insert(states.end(), first, first + static_cast<std::ptrdiff_t>(plan_.slices[s].tokens.size() * width));
  }
  const auto keep = [&](Buffer buffer) {
    buffers_.push_back(std::move(buffer));
    return buffers_.back().view();
  };
  teacher_.x = keep(device_.upload(states, rows_, head.w.inputs, MemoryCategory::activations));
  teacher_.w = head.w;
  teacher_.round_input_bf16 = head.round_input_bf16;
  teacher_.divergence = loss_.parameters.divergence;
  teacher_.log_sum = keep(device_.allocate(DType::f32, rows_, 1, MemoryCategory::activations));
  teacher_.centre = keep(device_.allocate(DType::f32, rows_, 1, MemoryCategory::activations));
}

// Uploads temperatures and kept tokens if some sequence has them; without any, the head gets no distribution and does no more work.
void LossColumns::make_distribution(std::int64_t vocabulary) {
  bool tempered = false, kept = false;
  std::vector<float> temperatures;
  std::vector<std::int32_t> rows, words;
  std::int64_t most = 0;
  for (std::size_t s = 0; s < plan_.slices.size(); ++s) {
    const TrainSequence& d = data_[plan_.origins[s].sequence];
    const auto begin = static_cast<std::size_t>(plan_.slices[s].begin);
    for (std::size_t i = 0; i < plan_.slices[s].tokens.size(); ++i) {
      temperatures.push_back(d.temperature);
      tempered = tempered || d.temperature != 1.0f;
      const KeptTokens* own = plan_.origins[s].prefix || d.kept_tokens.empty() ? nullptr : &d.kept_tokens[begin + i];
      const bool cut = own && own->cut();
      rows.insert(rows.end(), {cut ? static_cast<std::int32_t>(own->order) : 0, static_cast<std::int32_t>(words.size()), cut ? own->count : 0});
      if (!cut) continue;
      words.insert(words.end(), own->words.begin(), own->words.end());
      most = std::max<std::int64_t>(most, own->count);
      kept = true;
    }
  }
  const auto upload = [&](const auto& values, std::int64_t height, std::int64_t width) {
    buffers_.push_back(device_.upload(values, height, width, MemoryCategory::activations));
    return buffers_.back().view();
  };
  if (tempered) distribution_.temperature = upload(temperatures, rows_, 1);
  if (!kept) return;
  distribution_.kept = upload(rows, rows_, 3);
  distribution_.kept_words = upload(words, 1, std::ssize(words));
  distribution_.vocabulary = vocabulary;
  distribution_.most_kept = most;
}

template <class F>
void LossColumns::column(View Objective::*view, const F& of) {
  std::vector<float> values;
  values.reserve(targets_.size());
  for (std::size_t s = 0; s < plan_.slices.size(); ++s) {
    const std::size_t sequence = plan_.origins[s].sequence, rows = plan_.slices[s].tokens.size();
    if (plan_.origins[s].prefix) {
      values.resize(values.size() + rows * static_cast<std::size_t>(width_), 0.0f);
      continue;
    }
    const std::vector<float>& from = of(sequence);
    const auto own = static_cast<std::size_t>(data_[sequence].targets_per_row);
    for (std::size_t i = 0; i < rows; ++i) {
      const std::size_t at = (static_cast<std::size_t>(plan_.slices[s].begin) + i) * own;
      values.insert(values.end(), from.begin() + static_cast<std::ptrdiff_t>(at), from.begin() + static_cast<std::ptrdiff_t>(at + own));
      values.resize(values.size() + static_cast<std::size_t>(width_) - own, 0.0f);
    }
  }
  buffers_.push_back(device_.upload(values, rows_, width_, MemoryCategory::activations));
  objective_.*view = buffers_.back().view();
}

void LossColumns::sequence_column(View Objective::*view, const std::vector<float>& values) {
  std::vector<float> all;
  all.reserve(targets_.size());
  for (std::size_t s = 0; s < plan_.slices.size(); ++s) all.resize(all.size() + plan_.slices[s].tokens.size() * static_cast<std::size_t>(width_), values[s]);
  buffers_.push_back(device_.upload(all, rows_, width_, MemoryCategory::activations));
  objective_.*view = buffers_.back().view();
}

std::pair<float, float> LossColumns::ratios_of(const TrainSequence& d, const std::vector<float>& logprobs) const {
  const LossParameters& p = objective_.parameters;
  const std::vector<float>& anchor = p.anchor == RatioAnchor::proximal ? d.proximal_logprobs : d.old_logprobs;
  std::pair<float, float> both(0.0f, 0.0f);
  if (p.anchor != RatioAnchor::current) both.first = static_cast<float>(sequence_ratio(d, logprobs, anchor).at(loss_.ratio_level));
  if (p.correction != Correction::none)
    both.second =
        static_cast<float>(sequence_ratio(d, p.anchor == RatioAnchor::proximal ? d.proximal_logprobs : logprobs, d.old_logprobs).at(loss_.correction_level));
  return both;
}

void LossColumns::set_ratios(const std::vector<float>& ratios, const std::vector<float>& corrections) {
  if (loss_.ratio_level != RatioLevel::token) sequence_column(&Objective::log_ratio, ratios);
  if (objective_.parameters.correction != Correction::none && loss_.correction_level != RatioLevel::token)
    sequence_column(&Objective::log_correction, corrections);
}

void LossColumns::set_logprobs(const std::vector<float>& logprobs) {
  std::vector<float> ratios, corrections;
  std::size_t row = 0;
  for (std::size_t s = 0; s < plan_.slices.size(); ++s) {
    const TrainSequence& d = data_[plan_.origins[s].sequence];
    std::vector<float> own(static_cast<std::size_t>(plan_.slices[s].begin * d.targets_per_row), 0.0f);  // a declared prefix is not scored
    for (std::size_t i = 0; i < plan_.slices[s].tokens.size(); ++i, ++row) {
      const auto at = logprobs.begin() + static_cast<std::ptrdiff_t>(row * static_cast<std::size_t>(width_));
      own.insert(own.end(), at, at + d.targets_per_row);
    }
    const auto [ratio, correction] = plan_.origins[s].prefix ? std::pair(0.0f, 0.0f) : ratios_of(d, own);
    ratios.push_back(ratio);
    corrections.push_back(correction);
  }
  set_ratios(ratios, corrections);
}

void LossColumns::set_whole_logprobs(const std::vector<float>& logprobs) {
  const auto [ratio, correction] = ratios_of(data_[plan_.origins.front().sequence], logprobs);
  set_ratios(std::vector<float>(plan_.slices.size(), ratio), std::vector<float>(plan_.slices.size(), correction));
}

}  // namespace lockstep
