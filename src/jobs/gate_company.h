// Checks that answers of a new deployment do not depend on what else is asked: prompts are answered alone and then in drawn company, and ids and both
// log-probabilities must have the same bits. Lengths, temperatures, orders and companions are drawn by kGateSeed, so they are the same for all versions.
//   check_company(spec, environment, candidate, sampler, check);   check.figures["comparisons"]
// Any thread, not the executor's.
#pragma once
#include "jobs/gate_side.h"

namespace lockstep {

// Sets the figures of `check` and, if it fails, the reason. `sampler`: of the candidate (gate_sampler). Errors: those of gate_requests() and the sampler;
// numeric for an answer that fails.
void check_company(const GateSpec& spec, const Environment& environment, const GateSide& candidate, Sampler& sampler, GateCheck& check);

}  // namespace lockstep
