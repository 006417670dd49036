#include "rl/rollout.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/hash.h"

namespace lockstep {

std::uint64_t derived_seed(std::uint64_t seed, SeedUse use, std::uint64_t item) {
  std::array<unsigned char, 24> bytes{};
  const std::array<std::uint64_t, 3> words = {seed, static_cast<std::uint64_t>(use), item};
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<unsigned char>(words[i / 8] >> (8 * (i % 8)));
  return xxh3(bytes.data(), bytes.size());
}

std::vector<double> RolloutGroup::rewards() const {
  std::vector<double> values;
  for (const Rollout& r : rollouts) values.push_back(r.reward);
  return values;
}

RolloutSource::RolloutSource(const Environment& environment, const Tokenizer& tokenizer, Sampler& sampler)
    : environment_(environment), tokenizer_(tokenizer), sampler_(sampler), end_tokens_(sampler.end_tokens()) {
  if (end_tokens_.empty()) fail(ErrorCode::unsupported, "the model names no 'eos_token_id', so no completion could end");
}

double RolloutSource::reward(const Problem& problem, const Rollout& rollout) const {
  if (!rollout.ended) return 0;
  // Special tokens stay in the text: an answer that contains one is wrong.
  const std::span<const std::int32_t> answer(rollout.tokens.data(), rollout.tokens.size() - 1);
  return environment_.reward(problem, tokenizer_.decode(answer, false));
}

std::vector<RolloutGroup> RolloutSource::sample(const std::vector<Problem>& problems, const RolloutOptions& options,
                                                const std::function<std::uint64_t(std::size_t)>& seed_of) {
  std::vector<RolloutGroup> groups(problems.size());
  std::vector<SampleRequest> requests;
  for (std::size_t i = 0; i < problems.size(); ++i) {
    groups[i].problem = problems[i];
    groups[i].prompt = tokenizer_.encode(problems[i].prompt, true);
    for (std::int64_t j = 0; j < options.samples; ++j) {
      requests.push_back({.prompt = groups[i].prompt,
                          .temperature = static_cast<float>(options.temperature),
                          .top_p = static_cast<float>(options.top_p),
                          .top_k = static_cast<std::int32_t>(options.top_k),
                          .min_p = static_cast<float>(options.min_p),
                          .seed = seed_of(i),
                          .sample_index = static_cast<std::int32_t>(j),
                          .max_tokens = static_cast<std::int32_t>(options.max_tokens),
                          .stop_tokens = end_tokens_,
                          .kept_tokens = options.kept_tokens});
    }
  }
  std::vector<SampleResult> results = sampler_.sample(requests);
  if (results.size() != requests.size()) fail(ErrorCode::internal, "the sampler gave {} completions for {} requests", results.size(), requests.size());
  if (!results.empty()) version_ = results.front().weights_version;
  for (std::size_t k = 0; k < results.size(); ++k) {
    SampleResult& result = results[k];
    RolloutGroup& group = groups[k / static_cast<std::size_t>(options.samples)];
    if (result.finish == SampleFinish::failed) fail(ErrorCode::numeric, "the completion of '{}' failed: {}", group.problem.prompt, result.error);
    if (result.mixed_versions || result.weights_version != version_)
      fail(ErrorCode::internal, "the weights changed during sampling, from version {} to {}", version_, result.weights_version);
    Rollout rollout;
    rollout.ended = result.finish == SampleFinish::stop;
    rollout.tokens = std::move(result.tokens);
    rollout.sampling_logprobs = std::move(result.sampling_logprobs);
    if (options.temperature > 0) rollout.temperature = static_cast<float>(options.temperature);  // 0: the raw log-probability is the sampling one
    rollout.kept_tokens = std::move(result.kept_tokens);
    rollout.reward = reward(group.problem, rollout);
    group.rollouts.push_back(std::move(rollout));
  }
  return groups;
}

}  // namespace lockstep
