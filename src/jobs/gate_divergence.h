// Measures KL(new || live) per token between a new deployment and the live one: the new one samples answers to the gate's prompts, and the log-probability
// that it gives each token, minus that of the live version, is averaged.
//   check_divergence(spec, environment, candidate, live, stop, check);   check.figures["kl"]
// Any thread, not the executor's.
#pragma once
#include "jobs/gate_side.h"

namespace lockstep {

// Sets the figures of `check` and, if it fails, the reason. Errors: those of gate_requests(), LocalSampler and gate_logprobs().
void check_divergence(const GateSpec& spec, const Environment& environment, const GateSide& candidate, const GateSide& live, const StopToken& stop,
                      GateCheck& check);

}  // namespace lockstep
