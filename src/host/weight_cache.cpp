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
  found->second.place.clear();
  return found->second.weights;
}

std::vector<SamplerWeights> WeightCache::add(State& state, const std::string& key, Entry entry) const {
  std::vector<SamplerWeights> gone;
  auto& entries = state.entries;
  const auto drop = [&](auto at) {
    gone.push_back(std::move(at->second.weights));
    return entries.erase(at);
  };
  if (!entry.place.empty())
    for (auto at = entries.begin(); at != entries.end();) at = at->second.place == entry.place ? drop(at) : std::next(at);
  entry.used = ++state.clock;
  entries[key] = std::move(entry);
  std::int64_t bytes = 0;
  for (const auto& [name, one] : entries) bytes += bytes_of(one.weights);
  while (bytes > most_bytes_ && entries.size() > 1) {
    const auto oldest = std::min_element(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.second.used < b.second.used; });
    bytes -= bytes_of(oldest->second.weights);
    drop(oldest);
  }
  return gone;
}

void WeightCache::put(const OnExecutor&, const std::string& key, SamplerWeights weights, const std::string& place) {
  std::vector<SamplerWeights> gone;  // buffers are given back here, on the executor
  const auto state = state_.lock();
  gone = add(*state, key, {std::move(weights), 0, place});
}

SamplerWeights WeightCache::get(const std::string& key, const std::function<SamplerWeights(const OnExecutor&)>& read) {
  if (SamplerWeights weights = find(key); weights.weights) return weights;
  return run_on(*executor_, WorkClass::training,
                [&](const OnExecutor& on) {
                  if (SamplerWeights weights = find(key); weights.weights) return weights;  // another was faster
                  executor_->name_piece("weights");
                  return get(on, key, read);
                })
      .get();
}

SamplerWeights WeightCache::get(const OnExecutor& on, const std::string& key, const std::function<SamplerWeights(const OnExecutor&)>& read) {
  if (SamplerWeights known = find(key); known.weights) return known;
  SamplerWeights weights = read(on);
  std::vector<SamplerWeights> gone;  // buffers are given back here, on the executor
  const auto state = state_.lock();
  gone = add(*state, key, {weights, 0, {}});
  return weights;
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
