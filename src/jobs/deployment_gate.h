// The gate of a deployment: it and the live version answer the same fixed prompts and are asked for the log-probability of the same texts, by the services
// that requests use, and the new one must not be worse than the bounds allow.
//   const GateReport report = judge_deployment(spec, {"v8", service, snapshot}, GateSide{"v7", live, ""}, interrupt_token());
// Takes as long as the answers take, among the requests of others. Any thread, not the executor's.
#pragma once
#include <optional>

#include "jobs/gate_side.h"

namespace lockstep {

// Without a live version only what needs none is asked. What goes wrong with the candidate fails its check. Errors: invalid_argument for a specification that
// does not fit the models, those of the live version's answers, cancelled.
GateReport judge_deployment(const GateSpec& spec, const GateSide& candidate, const std::optional<GateSide>& live, const StopToken& stop);

}  // namespace lockstep
