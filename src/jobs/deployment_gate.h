// Runs the gate of a deployment: the new version and the live one answer the same fixed prompts and score the same texts, through the services that
// requests use; the new one must not be worse than the bounds allow. Takes its turn among other requests. Any thread, not the executor's.
//   const GateReport report = judge_deployment(spec, {"v8", service, snapshot}, GateSide{"v7", live, ""}, interrupt_token());
#pragma once
#include <optional>

#include "jobs/gate_side.h"

namespace lockstep {

// Without a live version only the checks that need none are done. An error of the candidate fails its check. Errors: invalid_argument for a
// specification that does not fit the models; those of the live version's answers; cancelled.
GateReport judge_deployment(const GateSpec& spec, const GateSide& candidate, const std::optional<GateSide>& live, const StopToken& stop);

}  // namespace lockstep
