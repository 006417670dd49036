#include "serving/local_sampler.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>

#include "base/error.h"

namespace lockstep {
namespace {
SampleResult sample_result(Generation&& g, bool kept_tokens) {
  SampleResult result;
  for (GeneratedToken& t : g.tokens) {
    result.tokens.push_back(t.id);
    result.raw_logprobs.push_back(t.raw_logprob);
    result.sampling_logprobs.push_back(t.sampling_logprob);
    if (kept_tokens) result.kept_tokens.push_back(std::move(t.kept));
    result.mixed_versions = result.mixed_versions || t.weights_version != g.tokens.front().weights_version;
    result.weights_version = t.weights_version;
  }
  if (g.finish == FinishReason::stop) result.finish = SampleFinish::stop;
  if (g.finish == FinishReason::length) result.finish = SampleFinish::length;
  result.error = std::move(g.error);
  return result;
}

// Shared with the callbacks, which may outlive an interrupted call.
struct Round {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<SampleResult> results;
  std::size_t open = 0;
  bool cancelled = false;
};
}  // namespace

std::uint64_t LocalSampler::weights_version() const { return adapter_ ? adapter_->version : weights_ ? weights_->version : service_->weights().version(); }

Request LocalSampler::engine_request(const SampleRequest& r) const {
  Request request{.prompt = r.prompt,
                  .sampling = {.temperature = r.temperature,
                               .top_p = r.top_p,
                               .top_k = r.top_k,
                               .min_p = r.min_p,
                               .seed = r.seed,
                               .max_tokens = r.max_tokens,
                               .stop_tokens = r.stop_tokens,
                               .sample_index = r.sample_index},
                  .kept_tokens = r.kept_tokens,
                  .keep_forward = keep_forwards_};
  request.weights = weights_;
  request.adapter = adapter_;
  return request;
}

std::vector<SampleResult> LocalSampler::sample(const std::vector<SampleRequest>& requests) {
  for (std::size_t i = 0; i < requests.size(); ++i)
    with_context(fmt::format("checking sample request {}", i), [&] { service_->check(engine_request(requests[i])); });
  const auto round = std::make_shared<Round>();
  round->results.resize(requests.size());
  std::vector<std::uint64_t> ids;
  const auto wait_until = [&](auto&& done) {
    std::unique_lock lock(round->mutex);
    while (!done()) {
      round->changed.wait_for(lock, std::chrono::milliseconds(100));
      if (!stop_.stopped()) continue;
      lock.unlock();
      for (const std::uint64_t id : ids) service_->cancel(id);
      stop_.throw_if_stopped();
    }
    if (round->cancelled) fail(ErrorCode::cancelled, "sampling was cancelled: the service of model '{}' stopped", service_->model().name());
  };
  // Other callers share the bound, so a refusal only means to wait for one of ours, or a little.
  const auto most = static_cast<std::size_t>(service_->bounds().max_open());
  for (std::size_t i = 0; i < requests.size(); ++i) {
    wait_until([&] { return round->open < most; });
    const auto on_done = [round, i, kept = requests[i].kept_tokens](Generation&& g) {
      const std::lock_guard lock(round->mutex);
      round->cancelled = round->cancelled || g.finish == FinishReason::cancelled;
      round->results[i] = sample_result(std::move(g), kept);
      --round->open;
      round->changed.notify_all();
    };
    {
      const std::lock_guard lock(round->mutex);
      ++round->open;
    }
    try {
      ids.push_back(service_->generate(engine_request(requests[i]), {}, on_done));
    } catch (const Error& e) {
      {
        const std::lock_guard lock(round->mutex);
        --round->open;
      }
      if (e.code() != ErrorCode::resource_exhausted) throw;
      --i;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  wait_until([&] { return round->open == 0; });
  return std::move(round->results);
}

}  // namespace lockstep
