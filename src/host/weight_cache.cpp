#include "host/weight_cache.h"

#include <algorithm>

namespace lockstep {

std::int64_t bytes_of(const SamplerWeights& weights) {
  std::int64_t bytes = 0;
  for (const Buffer& buffer : weights.adapter ? weights.adapter->parameters : weights.weights->parameters)
    bytes += buffer.view().size() * buffer.view().element_bytes;
  return bytes;
}

SamplerWeights WeightCache::find(const std::string& key) {
  const auto state = state_.lock();
  const auto found = state->entries.find(key);
  if (found == state->entries.end()) return {};
  found->second.used = ++state->clock;
  return found->second.weights;
}

SamplerWeights WeightCache::get(const std::string& key, const std::function<SamplerWeights(const OnExecutor&)>& read) {
  if (SamplerWeights weights = find(key); weights.weights) return weights;
  return run_on(*executor_, WorkClass::training,
                [&](const OnExecutor& on) {
                  if (SamplerWeights weights = find(key); weights.weights) return weights;  // another was faster
                  executor_->name_piece("weights");
                  SamplerWeights weights = read(on);
                  std::vector<SamplerWeights> gone;  // buffers are given back here, on the executor
                  const auto state = state_.lock();
                  auto& entries = state->entries;
                  entries[key] = {weights, ++state->clock};
                  std::int64_t bytes = 0;
                  for (const auto& [name, entry] : entries) bytes += bytes_of(entry.weights);
                  while (bytes > most_bytes_ && entries.size() > 1) {
                    const auto oldest =
                        std::min_element(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.second.used < b.second.used; });
                    bytes -= bytes_of(oldest->second.weights);
                    gone.push_back(std::move(oldest->second.weights));
                    entries.erase(oldest);
                  }
                  return weights;
                })
      .get();
}

bool WeightCache::drop_oldest(const OnExecutor&) {
  SamplerWeights gone;
  const auto state = state_.lock();
  auto& entries = state->entries;
  const auto oldest = std::min_element(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.second.used < b.second.used; });
  if (oldest == entries.end()) return false;
  gone = std::move(oldest->second.weights);
  entries.erase(oldest);
  return true;
}

void WeightCache::clear(const OnExecutor&) {
  const auto state = state_.lock();
  state->entries.clear();
}

}  // namespace lockstep
