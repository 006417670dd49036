// A cache of the weights of sampled checkpoints. They are read when first asked for; the least recently used are dropped when memory is needed, and
// read again with the same bits. Any thread; reading runs on the executor.
//   WeightCache cache(executor, bytes); const SamplerWeights weights = cache.get(key, [&](const OnExecutor&) { return read(folder); });
#pragma once
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/guarded.h"
#include "serving/on_executor.h"
#include "trained/trained_model.h"

namespace lockstep {

// Bytes of cached weights, without the base's.
std::int64_t bytes_of(const SamplerWeights& weights);

class WeightCache {
 public:
  WeightCache(std::shared_ptr<Executor> executor, std::int64_t most_bytes) : executor_(std::move(executor)), most_bytes_(most_bytes) {}
  // `key` names one immutable set of weights. Errors: those of `read`; cancelled when the executor has stopped.
  SamplerWeights get(const std::string& key, const std::function<SamplerWeights(const OnExecutor&)>& read);
  SamplerWeights get(const OnExecutor& on, const std::string& key, const std::function<SamplerWeights(const OnExecutor&)>& read);
  // Weights that get(key) shall find without reading. `place`: of what was put there before them and nobody has got, nothing stays.
  void put(const OnExecutor& on, const std::string& key, SamplerWeights weights, const std::string& place);
  // Drops the least recently used to free memory; requests that use it keep it. False: there is none.
  bool drop_oldest(const OnExecutor& on);
  void clear(const OnExecutor& on);

 private:
  struct Entry {
    SamplerWeights weights;
    std::uint64_t used = 0;
    std::string place;  // empty: it was got
  };
  struct State;
  SamplerWeights find(const std::string& key);
  // What has to go for it.
  std::vector<SamplerWeights> add(State& state, const std::string& key, Entry entry) const;

  std::shared_ptr<Executor> executor_;
  const std::int64_t most_bytes_;
  struct State {
    std::map<std::string, Entry> entries;
    std::uint64_t clock = 0;
  };
  Guarded<State> state_;
};

}  // namespace lockstep
