#include "train/loss_metrics.h"

#include <algorithm>
#include <cmath>

#include "numerics/elementary_double.h"
#include "train/loss_columns.h"
#include "train/losses.h"

namespace lockstep {

namespace {
constexpr double kFurthest = 20;  // beyond it a ratio says nothing, and sums of many would be out of an exact sum's range
double ratio_of(double log_ratio) { return exp_double(std::clamp(log_ratio, -kFurthest, kFurthest)); }
// e^-d + d - 1
double k3_of(double d) {
  const double near = std::clamp(d, -kFurthest, kFurthest);
  return ratio_of(-near) + (near - 1.0);
}
}  // namespace

void LossMetricSums::add_ratio(double log_ratio) {
  const LossParameters& p = loss_.parameters;
  const double ratio = ratio_of(std::clamp(log_ratio, static_cast<double>(p.log_ratio_low), static_cast<double>(p.log_ratio_high)));
  ratio_least_ = ratio_.count == 0 ? ratio : std::min(ratio_least_, ratio);
  ratio_most_ = ratio_.count == 0 ? ratio : std::max(ratio_most_, ratio);
  ratio_.add(ratio);
}

void LossMetricSums::add_correction(double log_correction) {
  const LossParameters& p = loss_.parameters;
  const double c = ratio_of(log_correction), low = p.correction_low, high = p.correction_high;
  const bool above = c > high, below = p.correction != Correction::truncate && c < low;
  if (p.correction == Correction::icepop) correction_.add(above || below ? 0.0 : c);
  else if (p.correction == Correction::mask) correction_.add(above || below ? 0.0 : 1.0);
  else correction_.add(above ? high : below ? low : c);
}

void LossMetricSums::add(const std::vector<TrainSequence>& data, const ForwardBackwardResult& result) {
  const LossParameters& p = loss_.parameters;
  const bool policy = is_policy(loss_.kind);
  for (std::size_t s = 0; s < data.size(); ++s) {
    const TrainSequence& d = data[s];
    const std::vector<float>& logprobs = result.logprobs[s];
    bool trains = false;
    const bool proximal = policy && p.anchor == RatioAnchor::proximal, old = policy && d.old_logprobs.size() == d.targets.size();
    const std::vector<float>& anchor = proximal ? d.proximal_logprobs : p.anchor == RatioAnchor::sampler && old ? d.old_logprobs : logprobs;
    const bool corrected = policy && p.correction != Correction::none;
    const double sequence_log_ratio = policy && loss_.ratio_level != RatioLevel::token ? sequence_ratio(d, logprobs, anchor).at(loss_.ratio_level) : 0.0;
    const std::vector<float>& corrected_from = proximal ? d.proximal_logprobs : logprobs;
    const double sequence_correction =
        corrected && loss_.correction_level != RatioLevel::token ? sequence_ratio(d, corrected_from, d.old_logprobs).at(loss_.correction_level) : 0.0;
    for (std::size_t i = 0; i < d.targets.size(); ++i) {
      if (d.targets[i] < 0 || d.weights[i] == 0) continue;
      trains = true;
      ++targets_;
      const double lp = logprobs[i];
      const std::size_t row = i / static_cast<std::size_t>(d.targets_per_row);
      if (i % static_cast<std::size_t>(d.targets_per_row) == 0) entropy_.add(static_cast<double>(result.entropies[s][row]));
      if (loss_.kind == LossKind::value && !result.marks.empty() && !result.marks[s].empty()) marked_[0] += result.marks[s][i];  // the value was held
      if (!policy) continue;
      add_ratio(loss_.ratio_level != RatioLevel::token ? sequence_log_ratio : lp - static_cast<double>(anchor[i]));
      if (old) {
        const double l = lp - static_cast<double>(d.old_logprobs[i]);
        difference_most_ = std::max(difference_most_, std::fabs(l));
        sampler_k1_.add(-l);
        sampler_k3_.add(k3_of(-l));
      }
      if (corrected)
        add_correction(loss_.correction_level != RatioLevel::token ? sequence_correction
                                                                   : static_cast<double>(corrected_from[i]) - static_cast<double>(d.old_logprobs[i]));
      if (d.reference_logprobs.size() == d.targets.size()) {
        const double distance = lp - static_cast<double>(d.reference_logprobs[i]);
        reference_k1_.add(distance);
        reference_k3_.add(k3_of(distance));
      }
      for (int mark = 0; mark < 7; ++mark) marked_[mark] += (result.marks[s][i] >> mark) & 1;
    }
    sequences_ += trains;
  }
}

LossMetrics LossMetricSums::metrics(const ForwardBackwardResult& result) {
  LossMetrics m = {{"loss:sum", result.loss},
                   {"tokens:sum", static_cast<double>(targets_)},
                   {"sequences:sum", static_cast<double>(sequences_)},
                   {"entropy:mean", entropy_.mean()}};
  if (loss_.kind == LossKind::value) m.back() = {"values_held:mean", targets_ > 0 ? static_cast<double>(marked_[0]) / static_cast<double>(targets_) : 0.0};
  if (!is_policy(loss_.kind)) return m;
  m.insert(m.end(), {{"ratio:mean", ratio_.mean()}, {"ratio:min", ratio_least_}, {"ratio:max", ratio_most_}});
  if (sampler_k1_.count > 0)
    m.insert(m.end(), {{"kl_sampler_k1:mean", sampler_k1_.mean()}, {"kl_sampler_k3:mean", sampler_k3_.mean()}, {"logprob_difference:max", difference_most_}});
  if (reference_k1_.count > 0) m.insert(m.end(), {{"kl_reference_k1:mean", reference_k1_.mean()}, {"kl_reference_k3:mean", reference_k3_.mean()}});
  const auto fraction = [&](const char* name, LossMark mark) {
    const auto bit = static_cast<unsigned>(__builtin_ctz(static_cast<unsigned>(mark)));
    m.emplace_back(name, targets_ > 0 ? static_cast<double>(marked_[bit]) / static_cast<double>(targets_) : 0.0);
  };
  fraction("clip_fraction_low:mean", kMarkClippedLow);
  fraction("clip_fraction_high:mean", kMarkClippedHigh);
  if (loss_.parameters.dual_clip > 0) fraction("dual_clip_fraction:mean", kMarkDualClipped);
  fraction("ratio_capped_fraction:mean", kMarkRatioCapped);
  if (loss_.kind == LossKind::dppo_tv || loss_.kind == LossKind::dppo_kl) fraction("untrusted_fraction:mean", kMarkUntrusted);
  if (loss_.parameters.correction != Correction::none) {
    m.emplace_back("correction:mean", correction_.mean());
    fraction("correction_high_fraction:mean", kMarkCorrectionHigh);
    fraction("correction_low_fraction:mean", kMarkCorrectionLow);
  }
  return m;
}

}  // namespace lockstep
