// Sampling for training clients: several sequences for one prompt. The call returns a request id at once; results are futures, and are also announced
// in the client's stream (host/future_feed.h). Any thread.
//   const std::string request = sampling.sample(owner, sampler, 0, wanted, encode); sampling.cancel(owner, request);
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/guarded.h"
#include "host/samplers.h"
#include "host/sampling_request.h"

namespace lockstep {

class TrainingSampling {
 public:
  TrainingSampling(TrainingCommons& commons, Sessions& sessions, Samplers& samplers) : commons_(commons), sessions_(sessions), samplers_(samplers) {}

  // Errors: not_found; cancelled; invalid_argument for a finished session; resource_exhausted: rejected, and may be sent again. Others become the request's
  // result.
  std::string sample(const std::string& owner, const std::string& sampler, std::int64_t sequence, const SamplingRequest& request,
                     Encode<SamplingResult> encode);
  // Cancels a running sample; its request fails. No effect on a finished one, or on another owner's.
  void cancel(const std::string& owner, const std::string& request);
  // The stream of finished samples (TrainingCommons::feed) of a sampler's clone: clone = sequence / 10^9. Error not_found.
  std::string feed_of(const std::string& owner, const std::string& sampler, std::int64_t clone);

 private:
  void begin(const std::string& owner, const std::string& request, const SamplerWeights& weights, const SamplingRequest& wanted, Encode<SamplingResult> encode);

  TrainingCommons& commons_;
  Sessions& sessions_;
  Samplers& samplers_;
  Guarded<std::map<std::string, std::vector<std::uint64_t>>> under_way_;  // request id -> generations
};

}  // namespace lockstep
