// Updates router biases by expert loads instead of gradients: counts how many rows chose each expert of each MoE layer since the last step, and moves
// each bias by a fixed rate towards even load. Counts are exact, over all ranks' rows. Used by the rank's thread.
//   RouterLoads loads(runtime, place); loads.move(rate, state);
#pragma once
#include "model/runtime.h"
#include "train/optimizer_state.h"

namespace lockstep {

class RouterLoads {
 public:
  // Of the model's layers; and of others', by their router biases.
  RouterLoads(Runtime& runtime, const RankPlace& place)
      : RouterLoads(runtime.backend, runtime.model->facts().router_biases, runtime.model->facts().expert_count, place) {}
  RouterLoads(Backend& backend, const std::vector<ParameterId>& biases, std::int64_t experts, const RankPlace& place);
  const std::vector<Buffer>& buffers() const { return loads_; }  // i32 [1, experts] of each sparse layer: forwards add to them
  void clear();
  // Call while a step publishes; rate 0 changes nothing. Resets the loads.
  void move(double rate, OptimizerState& state);

 private:
  std::vector<float> moved(std::size_t layer, double rate, std::vector<float> bias) const;

  Backend& backend_;
  const std::vector<ParameterId> biases_;
  const std::int64_t experts_;
  RankPlace place_;
  std::vector<Buffer> loads_;
};

}  // namespace lockstep
