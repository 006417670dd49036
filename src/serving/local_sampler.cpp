#include "serving/local_sampler.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <optional>

#include "base/error.h"
#include "serving/held_completion.h"

namespace lockstep {
namespace {
SampleResult sample_result(Generation&& g, bool kept_tokens) {
  SampleResult result;
  std::optional<std::uint64_t> version;  // of the first that was drawn
  const bool put_in = std::any_of(g.tokens.begin(), g.tokens.end(), [](const GeneratedToken& t) { return t.put_in; });
  for (GeneratedToken& t : g.tokens) {
    result.tokens.push_back(t.id);
    result.raw_logprobs.push_back(t.raw_logprob);
    result.sampling_logprobs.push_back(t.sampling_logprob);
    if (kept_tokens) result.kept_tokens.push_back(std::move(t.kept));
    if (put_in) result.put_in.push_back(t.put_in);
    if (t.put_in) continue;
    result.mixed_versions = result.mixed_versions || t.weights_version != version.value_or(t.weights_version);
    version = result.weights_version = t.weights_version;
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

// `drawn`: counts its tokens, before on_done is called.
std::uint64_t LocalSampler::start_checked(const SampleRequest& r, std::shared_ptr<std::int64_t> drawn, std::function<void(Generation&&)> on_done) const {
  Request request = engine_request(r);
  CompletionOrder order{.prompts = {{std::move(request.prompt)}},
                        .sampling = std::move(request.sampling),
                        .max_tokens = r.max_tokens,
                        .stop_tokens = r.stop_tokens,
                        .model_ends = false,
                        .holds = r.check->holds,
                        .weights = request.weights,
                        .adapter = request.adapter,
                        .kept_tokens = request.kept_tokens,
                        .keep_forward = request.keep_forward};
  const auto held = std::make_shared<HeldCompletion>(
      service_, order,
      HeldCompletion::Callbacks{.on_token = [drawn = std::move(drawn)](const OnExecutor&, const GeneratedToken&, const std::string&) { return ++*drawn, true; },
                                .on_hold = [check = r.check](const OnExecutor&, const Hold& hold) { return std::optional(check->decide(hold)); },
                                .on_end =
                                    [on_done = std::move(on_done)](const OnExecutor&, CompletionEnd&& end) {
                                      end.generation.finish = end.finish;
                                      on_done(std::move(end.generation));
                                    }});
  return held->start();
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
    const auto drawn = std::make_shared<std::int64_t>(0);
    const auto on_done = [round, i, drawn, kept = requests[i].kept_tokens](Generation&& g) {
      const auto standing = std::count_if(g.tokens.begin(), g.tokens.end(), [](const GeneratedToken& t) { return !t.put_in; });
      const std::lock_guard lock(round->mutex);
      round->cancelled = round->cancelled || g.finish == FinishReason::cancelled;
      round->results[i] = sample_result(std::move(g), kept);
      round->results[i].rolled_back = std::max<std::int64_t>(0, *drawn - standing);
      --round->open;
      round->changed.notify_all();
    };
    {
      const std::lock_guard lock(round->mutex);
      ++round->open;
    }
    try {
      ids.push_back(requests[i].check ? start_checked(requests[i], drawn, on_done) : service_->generate(engine_request(requests[i]), {}, on_done));
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
