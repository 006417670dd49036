// Internals of the steps that a parity run compares, for parity_*.cpp only: in which modes a model is trained, and on what each mode is compared with one
// batch on the reference place.
//   for (const StepMode mode : step_modes(scene)) for (const StepWay& way : step_ways(scene, mode)) ...
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/kept_forwards.h"
#include "parity/parity_run.h"

namespace lockstep {

// adapter: of an adapter, experts' parts too, over weights that stay as they are; the others are of all weights. pieces, and adapter_pieces of an adapter:
// one sequence is cut into pieces over the cp ranks of the requested layout. pairs and divergence: parity/taught_steps.h.
enum class StepMode { cross_entropy, policy, indexer, value, adapter, pieces, adapter_pieces, pairs, divergence };
inline bool of_adapter(StepMode mode) { return mode == StepMode::adapter || mode == StepMode::adapter_pieces; }
inline bool in_pieces(StepMode mode) { return mode == StepMode::pieces || mode == StepMode::adapter_pieces; }
std::string_view step_mode_name(StepMode mode);

struct StepWay {
  ParityPlace place;
  std::int64_t micro_batch = 0;
  bool shuffle = false, checkpoint = false;
  bool two_calls = false;              // two forward_backward before each optimiser step
  bool fixed_normaliser = false;       // instead of the sum of the weights of a call: what two calls can have in common with one
  std::optional<RowValues> kept = {};  // it reads what an engine kept of the same rows (model/kept_forwards.h)
  bool gives_way = false;              // to live work in its middle
  std::string text() const;
};

// The ways in which this model can be trained under the scene's profile.
std::vector<StepMode> step_modes(const ParityScene& scene);
// Whether a teacher's head stands beside the model's: of weights in few bits it is not compared.
inline bool compares_teachers(const ParityScene& scene) { return scene.trains() && scene.profile.weight_bits == 0; }
std::vector<StepWay> step_ways(const ParityScene& scene, StepMode mode);
// How often all of them are compared, each time with other data.
std::int64_t step_rounds(const ParityScene& scene);

}  // namespace lockstep
