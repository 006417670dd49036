// Measures tokens per second of a new deployment and of the live one on the same prompts, in turns. Both generate the same number of tokens, whatever these
// are, so that a version with shorter answers does not seem slower.
//   check_speed(spec, environment, candidate, live, stop, check);   check.figures["tokens_per_second"]
// Any thread, not the executor's.
#pragma once
#include <optional>

#include "jobs/gate_side.h"

namespace lockstep {

// Sets the figures of `check` and, if it fails, the reason. Errors: those of gate_requests() and LocalSampler.
void check_speed(const GateSpec& spec, const Environment& environment, const GateSide& candidate, const std::optional<GateSide>& live, const StopToken& stop,
                 GateCheck& check);

}  // namespace lockstep
