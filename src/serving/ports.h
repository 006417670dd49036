// The interface through which reinforcement learning samples: token ids in; token ids, both log-probabilities and the weights version out.
// Implemented in this process (serving/local_sampler.h); nothing here knows a transport, an engine or text. Plain values; sample() is called by one
// thread at a time.
//   for (const SampleResult& r : sampler.sample(requests)) use(r.tokens, r.sampling_logprobs);
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/kept_tokens.h"
#include "serving/hold.h"

namespace lockstep {

struct SampleCheck {
  HoldOrder holds;
  std::function<HoldAction(const Hold&)> decide;  // must neither block nor throw; an action that is not allowed fails the sample
};

struct SampleRequest {
  std::vector<std::int32_t> prompt;
  float temperature = 1;   // 0 to 100; 0: arg-max
  float top_p = 1;         // 0 to 1; 1: all
  std::int32_t top_k = 0;  // 0: all
  float min_p = 0;         // 0 to 1; 0: all
  std::uint64_t seed = 0;
  std::int32_t sample_index = 0;  // which of several samples of one prompt and seed
  std::int32_t max_tokens = 16;
  std::vector<std::int32_t> stop_tokens;  // only these: the sampler's end_tokens() are not added
  bool kept_tokens = false;               // fill SampleResult::kept_tokens
  // Called while sample() waits, one call at a time, by the sampling thread: holds the answer on the way and says how it goes on. Null: no holding.
  std::shared_ptr<const SampleCheck> check = nullptr;
};

enum class SampleFinish {
  stop,    // the last token is a stop token, or its check stopped it
  length,  // max_tokens
  failed,  // NaN or infinity; see `error`
};

// Two log-probabilities a token: of the model as it is, and of the distribution it was drawn from (after temperature and
// filters). Training corrects against the second.
struct SampleResult {
  std::vector<std::int32_t> tokens;
  std::vector<float> raw_logprobs, sampling_logprobs;
  std::vector<std::uint8_t> put_in;     // 1: a check put the token in, nobody drew it, and its log-probabilities are 0; empty: there are none
  std::vector<KeptTokens> kept_tokens;  // when asked for: what each token was drawn from, where top-k, top-p or min-p cut
  std::int64_t rolled_back = 0;         // tokens that were drawn and that a check took back
  SampleFinish finish = SampleFinish::failed;
  std::string error;
  std::uint64_t weights_version = 0;  // of the last token
  bool mixed_versions = false;        // the weights changed meanwhile: exactness is not promised
};

class Sampler {
 public:
  virtual ~Sampler() = default;
  // One result a request, in order. Errors: invalid_argument with the field at fault (then nothing was sampled), cancelled.
  virtual std::vector<SampleResult> sample(const std::vector<SampleRequest>& requests) = 0;
  // Digest of the numerics profile; training refuses to mix profiles unless asked to.
  virtual std::string profile_digest() const = 0;
  // Version of the weights for the next tokens.
  virtual std::uint64_t weights_version() const = 0;
  // Tokens with which the model ends a text.
  virtual std::vector<std::int32_t> end_tokens() const = 0;
};

}  // namespace lockstep
