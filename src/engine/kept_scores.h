// Scores rows of a prompt that an earlier forward of the same weights, adapter and owner kept (model/kept_forwards.h): their outputs are read, and the
// head alone is run. Their entries stand in pages of the prefix cache, so the rows behind them are computed as ever. Used by the thread that runs the
// steps.
//   const std::string fault = scores.read(steps, forwards, model, slice, counters);
#pragma once
#include <string>
#include <vector>

#include "engine/rank_steps.h"

namespace lockstep {

class KeptScores {
 public:
  // Puts the scores of a planned slice (PlannedSlice::read) into its request's answer, after the step's forward has run. Returns why the request fails,
  // since a row is wrong; empty: it goes on. Errors: those of a step, which are no request's.
  std::string read(RankSteps& steps, KeptForwards& forwards, const Model& model, const PlannedSlice& slice, EngineCounters& counters);

 private:
  std::vector<PlannedSlice> plan_;
  StepWants wants_;
  StepResult result_;
};

}  // namespace lockstep
