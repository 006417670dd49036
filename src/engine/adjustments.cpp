#include "engine/adjustments.h"

namespace lockstep {

LogitAdjustments::Entry& LogitAdjustments::entry(std::int32_t token) {
  const auto [place, added] = places_.emplace(token, entries_.size());
  if (added) entries_.push_back({.token = token});
  return entries_[place->second];
}

void LogitAdjustments::begin(const SamplingParameters& sampling, std::span<const std::int32_t> prompt) {
  repeats_ = sampling.repetition_penalty != 1;
  counts_ = repeats_ || sampling.presence_penalty != 0 || sampling.frequency_penalty != 0;
  for (const LogitBias& b : sampling.logit_bias)
    if (b.bias != 0) entry(b.token).bias = b.bias;
  if (repeats_)
    for (std::int32_t token : prompt) entry(token).seen = true;
  for (const Entry& e : entries_) begun_seen_.push_back(e.seen);
}

void LogitAdjustments::accept(std::int32_t token) {
  if (!counts_) return;
  Entry& e = entry(token);
  e.seen = true;
  ++e.count;
}

void LogitAdjustments::truncate(std::span<const std::int32_t> tokens) {
  if (!counts_) return;
  for (std::size_t i = tokens.size(); i-- > 0;) {
    const std::size_t at = places_.at(tokens[i]);
    if (--entries_[at].count > 0) continue;
    if (at < begun_seen_.size()) {
      entries_[at].seen = begun_seen_[at];
    } else {  // the last one that came
      entries_.pop_back();
      places_.erase(tokens[i]);
    }
  }
}

}  // namespace lockstep
