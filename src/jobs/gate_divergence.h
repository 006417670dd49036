// How far a deployment's own samples are from the live version: the mean, over tokens that it draws for the gate's prompts, of the log-probability that it
// gives them less that of the live version. Its expectation is the divergence KL(new || live) a token.
//   check_divergence(spec, environment, candidate, live, stop, check);   check.figures["kl"]
// Any thread, not the executor's.
#pragma once
#include "jobs/gate_side.h"

namespace lockstep {

// Sets the figures of `check`, and why it failed. Errors: those of gate_requests(), LocalSampler and gate_logprobs().
void check_divergence(const GateSpec& spec, const Environment& environment, const GateSide& candidate, const GateSide& live, const StopToken& stop,
                      GateCheck& check);

}  // namespace lockstep
