#include "host/weight_cache.h"

#include <algorithm>

namespace lockstep {

std::int64_t bytes_of(const SamplerWeights& weights) {
  std::int64_t bytes = 0;
  for (const Buffer& buffer : weights.adapter ? weights.adapter->parameters : weights.weights->parameters) bytes += buffer.view().size() * buffer.view().element_bytes;
  return bytes;
}

SamplerWeights WeightCache::find(const std::string& key) {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(key);
  if (found == entries_.end()) return {};
  found->second.used = ++clock_;
  return found->second.weights;
}

SamplerWeights WeightCache::get(const std::string& key, const std::function<SamplerWeights()>& read) {
  if (SamplerWeights weights = find(key); weights.weights) return weights;
  return executor_->run(WorkPriority::training, [&] {
    if (SamplerWeights weights = find(key); weights.weights) return weights;  // another was faster
    SamplerWeights weights = read();
    std::vector<SamplerWeights> gone;  // buffers are given back here, on the executor
    const std::lock_guard lock(mutex_);
    entries_[key] = {weights, ++clock_};
    std::int64_t bytes = 0;
    for (const auto& [name, entry] : entries_) bytes += bytes_of(entry.weights);
    while (bytes > most_bytes_ && entries_.size() > 1) {
      const auto oldest = std::min_element(entries_.begin(), entries_.end(), [](const auto& a, const auto& b) { return a.second.used < b.second.used; });
      bytes -= bytes_of(oldest->second.weights);
      gone.push_back(std::move(oldest->second.weights));
      entries_.erase(oldest);
    }
    return weights;
  }).get();
}

bool WeightCache::drop_oldest() {
  SamplerWeights gone;
  const std::lock_guard lock(mutex_);
  const auto oldest = std::min_element(entries_.begin(), entries_.end(), [](const auto& a, const auto& b) { return a.second.used < b.second.used; });
  if (oldest == entries_.end()) return false;
  gone = std::move(oldest->second.weights);
  entries_.erase(oldest);
  return true;
}

void WeightCache::clear() {
  const std::lock_guard lock(mutex_);
  entries_.clear();
}

}  // namespace lockstep
