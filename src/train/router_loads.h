// Router biases, which move by what experts were chosen for and not by a gradient: how many rows each expert of each sparse layer had since
// the last step, and the move. The aim is an even load; it is counted exactly over all ranks' rows, and a bias moves by a fixed rate.
// Used by the rank's thread.
//   RouterLoads loads(runtime, place); loads.move(rate, state);
#pragma once
#include "model/runtime.h"
#include "train/optimizer_state.h"

namespace lockstep {

class RouterLoads {
 public:
  RouterLoads(Runtime& runtime, const RankPlace& place);
  const std::vector<Buffer>& buffers() const { return loads_; }  // i32 [1, experts] of each sparse layer: forwards add to them
  void clear();
  // In the publishing of a step; rate 0 moves nothing. They are empty then.
  void move(double rate, OptimizerState& state);

 private:
  std::vector<float> moved(std::size_t layer, double rate, std::vector<float> bias) const;

  Runtime& runtime_;
  RankPlace place_;
  std::vector<Buffer> loads_;
};

}  // namespace lockstep
