#include "jobs/gate_side.h"

#include <chrono>
#include <future>
#include <utility>

#include "base/error.h"
#include "rl/evaluation.h"

namespace lockstep {

LocalSampler gate_sampler(const GateSide& side, const StopToken& stop) { return LocalSampler(side.service, stop, side.weights, side.adapter); }

std::vector<SampleRequest> gate_requests(const GateSpec& spec, const Environment& environment, const GateSide& side, std::int64_t count) {
  const Tokenizer& tokenizer = side.service->model().tokenizer();
  std::vector<SampleRequest> requests;
  for (const Problem& problem : held_out_problems(environment, kGateSeed, count)) {
    const std::unique_ptr<Episode> episode = environment.begin(problem);
    SampleRequest request;
    request.prompt = tokenizer.encode(episode->task(), true);
    const std::vector<std::int32_t> first = tokenizer.encode(episode->first(), false);
    request.prompt.insert(request.prompt.end(), first.begin(), first.end());
    request.temperature = 0;
    request.seed = kGateSeed + requests.size();
    request.max_tokens = static_cast<std::int32_t>(spec.max_tokens);
    request.stop_tokens = side.service->model().end_tokens();
    requests.push_back(std::move(request));
  }
  return requests;
}

std::vector<float> gate_logprobs(const GateSide& side, const std::vector<std::int32_t>& ids, const StopToken& stop, const std::string& what) {
  Request request{.prompt = ids};
  request.weights = side.weights;
  request.adapter = side.adapter;
  request.sampling.max_tokens = 0;
  request.prompt_logprobs = true;
  const auto told = std::make_shared<std::promise<Generation>>();
  std::future<Generation> done = told->get_future();
  const std::uint64_t id = with_context(fmt::format("scoring {} of the gate", what), [&] {
    return side.service->generate(std::move(request), {}, [told](Generation&& g) { told->set_value(std::move(g)); });
  });
  while (done.wait_for(std::chrono::milliseconds(100)) != std::future_status::ready)
    if (stop.stopped()) side.service->cancel(id);
  Generation generation = done.get();
  if (generation.finish == FinishReason::cancelled) fail(ErrorCode::cancelled, "the gate was ended: the server stops, or '{}' was deleted", side.name);
  if (generation.finish == FinishReason::error) fail(ErrorCode::numeric, "{} cannot be scored by '{}': {}", what, side.name, generation.error);
  return std::move(generation.prompt_logprobs);
}

}  // namespace lockstep
