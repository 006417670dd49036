#include "jobs/gate_divergence.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "rl/evaluation.h"

namespace lockstep {
namespace {
// Log-probability under the candidate less that under the live version, of each token that the candidate drew for a prompt.
std::vector<double> log_ratios(const SampleRequest& request, const SampleResult& drawn, const GateSide& live, const StopToken& stop, std::size_t prompt) {
  std::vector<std::int32_t> ids = request.prompt;
  ids.insert(ids.end(), drawn.tokens.begin(), drawn.tokens.end());
  const std::vector<float> under_live = gate_logprobs(live, ids, stop, fmt::format("the answer to prompt {}", prompt + 1));
  std::vector<double> ratios;
  for (std::size_t i = 0; i < drawn.tokens.size(); ++i)
    ratios.push_back(static_cast<double>(drawn.raw_logprobs[i]) - static_cast<double>(under_live[request.prompt.size() - 1 + i]));
  return ratios;
}
}  // namespace

void check_divergence(const GateSpec& spec, const Environment& environment, const GateSide& candidate, const GateSide& live, const StopToken& stop,
                      GateCheck& check) {
  std::vector<SampleRequest> requests = gate_requests(spec, environment, candidate, spec.prompts());
  const std::vector<SampleRequest> same = gate_requests(spec, environment, live, spec.prompts());
  for (std::size_t i = 0; i < requests.size(); ++i) {
    requests[i].temperature = 1;
    if (requests[i].prompt == same[i].prompt) continue;
    check.why = fmt::format("'{}' and '{}' split prompt {} into different tokens, whose log-probabilities do not compare", candidate.name, live.name, i + 1);
    return;
  }
  const std::vector<SampleResult> drawn = gate_sampler(candidate, stop).sample(requests);
  std::vector<double> by_prompt, sizes;  // means of ratios; absolute ratios of all tokens
  double sum = 0, low_variance = 0, largest = 0;
  std::size_t largest_prompt = 0, largest_token = 0;
  for (std::size_t i = 0; i < drawn.size(); ++i) {
    if (drawn[i].finish == SampleFinish::failed) fail(ErrorCode::numeric, "an answer of '{}' failed: {}", candidate.name, drawn[i].error);
    const std::vector<double> ratios = log_ratios(requests[i], drawn[i], live, stop, i);
    double of_prompt = 0;
    for (std::size_t t = 0; t < ratios.size(); ++t) {
      of_prompt += ratios[t];
      low_variance += std::expm1(-ratios[t]) + ratios[t];
      sizes.push_back(std::abs(ratios[t]));
      if (std::abs(ratios[t]) > std::abs(largest)) largest = ratios[t], largest_prompt = i, largest_token = t;
    }
    sum += of_prompt;
    by_prompt.push_back(of_prompt / static_cast<double>(ratios.size()));
  }
  const auto tokens = static_cast<double>(sizes.size());
  const double kl = sum / tokens;
  if (!std::isfinite(kl)) {
    check.why = fmt::format("the divergence of '{}' from '{}', which is live, is no number", candidate.name, live.name);
    return;
  }
  double absolute = 0;
  for (const double one : sizes) absolute += one;
  const std::size_t at = (sizes.size() - 1) * 99 / 100;
  std::nth_element(sizes.begin(), sizes.begin() + static_cast<std::ptrdiff_t>(at), sizes.end());
  check.figures = {{"prompts", drawn.size()},
                   {"tokens", sizes.size()},
                   {"kl", kl},
                   {"kl_by_prompt", to_json(bootstrap_means({by_prompt}, kGateSeed).front())},
                   {"k3", low_variance / tokens},
                   {"mean_absolute", absolute / tokens},
                   {"p99_absolute", sizes[at]},
                   {"largest", {{"log_ratio", largest}, {"prompt", largest_prompt}, {"token", largest_token}}}};
  if (!spec.kl_limit) return;
  check.figures["kl_limit"] = *spec.kl_limit;
  if (kl > *spec.kl_limit)
    check.why = fmt::format("samples of '{}' are {:.4f} nats a token from '{}', which is live (the mean of log ratios over {} tokens), allowed are {}",
                            candidate.name, kl, live.name, sizes.size(), *spec.kl_limit);
}

}  // namespace lockstep
