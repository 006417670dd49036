// The Sampler (serving/ports.h) over a generation service of this process. Any number of requests may be passed: it submits no more at once than the
// service accepts. Used by one thread at a time, never by a callback of the service.
//   LocalSampler sampler(service); std::vector<SampleResult> results = sampler.sample(requests);
#pragma once
#include "base/stop_token.h"
#include "serving/ports.h"
#include "serving/serving.h"

namespace lockstep {

class LocalSampler : public Sampler {
 public:
  // `keep_forwards`: the samples will be trained on (Request::keep_forward).
  explicit LocalSampler(std::shared_ptr<GenerationService> service, StopToken stop = {}, bool keep_forwards = false)
      : service_(std::move(service)), stop_(std::move(stop)), keep_forwards_(keep_forwards) {}
  // Samples under other weights, and an adapter over them (null: none), than the service's; each request carries them.
  LocalSampler(std::shared_ptr<GenerationService> service, StopToken stop, std::shared_ptr<const WeightSet> weights,
               std::shared_ptr<const AdapterWeights> adapter)
      : service_(std::move(service)), stop_(std::move(stop)), keep_forwards_(false), weights_(std::move(weights)), adapter_(std::move(adapter)) {}
  // When `stop` is set while it waits, it cancels what runs, then throws Error cancelled.
  std::vector<SampleResult> sample(const std::vector<SampleRequest>& requests) override;
  std::string profile_digest() const override { return service_->model().profile_digest(); }
  std::uint64_t weights_version() const override;
  std::vector<std::int32_t> end_tokens() const override { return service_->model().end_tokens(); }

 private:
  Request engine_request(const SampleRequest& request) const;
  std::uint64_t start_checked(const SampleRequest& request, std::shared_ptr<std::int64_t> drawn, std::function<void(Generation&&)> on_done) const;
  std::shared_ptr<GenerationService> service_;
  StopToken stop_;
  const bool keep_forwards_;
  const std::shared_ptr<const WeightSet> weights_;  // null: the service's
  const std::shared_ptr<const AdapterWeights> adapter_;
};

}  // namespace lockstep
