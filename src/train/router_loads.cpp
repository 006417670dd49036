#include "train/router_loads.h"

#include "parallel/collectives.h"

namespace lockstep {

RouterLoads::RouterLoads(Backend& backend, const std::vector<ParameterId>& biases, std::int64_t experts, const RankPlace& place)
    : backend_(backend), biases_(biases), experts_(experts), place_(place) {
  for (std::size_t i = 0; i < biases_.size(); ++i) loads_.push_back(backend.device().allocate_zero(DType::i32, 1, experts, MemoryCategory::workspace));
}

void RouterLoads::clear() {
  for (const Buffer& loads : loads_) backend_.stream().fill_zero(loads.view());
}

void RouterLoads::move(double rate, OptimizerState& state) {
  for (std::size_t layer = 0; rate > 0 && layer < loads_.size(); ++layer) {
    const ParameterId id = biases_[layer];
    state.replace(id, moved(layer, rate, backend_.stream().read(state.weights()[static_cast<std::size_t>(id)].view()).get()));
  }
  clear();
}

std::vector<float> RouterLoads::moved(std::size_t layer, double rate, std::vector<float> bias) const {
  const int ranks = place_.layout.data();
  const std::int64_t experts = experts_;
  Buffer loads = loads_[layer];
  if (ranks > 1) {
    loads = backend_.device().allocate(DType::i32, ranks, experts, MemoryCategory::workspace);
    std::vector<View> all;
    for (int r = 0; r < ranks; ++r) all.push_back(loads.view().row_range(r, 1));
    all_gather(*place_.data, backend_.stream(), loads_[layer].view(), all);
  }
  const std::vector<std::int32_t> counts = backend_.stream().read_ints(loads.view()).get();
  std::vector<std::int64_t> load(static_cast<std::size_t>(experts));
  for (std::size_t i = 0; i < counts.size(); ++i) load[i % load.size()] += counts[i];
  std::int64_t total = 0;
  for (const std::int64_t n : load) total += n;
  for (std::size_t e = 0; e < bias.size(); ++e) {
    const std::int64_t excess = total - load[e] * experts;
    bias[e] += static_cast<float>(rate) * static_cast<float>((excess > 0) - (excess < 0));
  }
  return bias;
}

}  // namespace lockstep
