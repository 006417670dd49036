// One side of a gate's comparison, the new version or the live one (serving/gate.h): its answers to the gate's prompts, and its log-probabilities of
// given tokens. Any thread, not the executor's.
//   std::vector<SampleRequest> requests = gate_requests(spec, environment, side, 8);   gate_logprobs(side, ids, stop, "text 1")
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/stop_token.h"
#include "rl/environment.h"
#include "serving/gate.h"
#include "serving/local_sampler.h"

namespace lockstep {

inline constexpr std::uint64_t kGateSeed = 20261127;  // of problems, of samples and of resampling: the same for all versions

// A sampler of the version's own weights if it has some (GateSide), else of its service's.
LocalSampler gate_sampler(const GateSide& side, const StopToken& stop);

// The first `count` prompts of the gate, to be answered greedily. Error invalid_argument when the environment has fewer.
std::vector<SampleRequest> gate_requests(const GateSpec& spec, const Environment& environment, const GateSide& side, std::int64_t count);

// [i] of token i + 1 given tokens 0..i. Errors: cancelled; numeric, and those of generate(), with `what`.
std::vector<float> gate_logprobs(const GateSide& side, const std::vector<std::int32_t>& ids, const StopToken& stop, const std::string& what);

}  // namespace lockstep
