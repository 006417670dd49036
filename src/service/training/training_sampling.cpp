// Samples for training clients: several sequences of one prompt, stops as texts or token ids, log-probabilities.
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/entropy.h"
#include "base/error.h"
#include "service/stop_texts.h"
#include "service/training/training_service.h"

namespace lockstep {
namespace {

// A client's copies of a sampler number their requests from n * 10^9 on.
constexpr std::int64_t kClone = 1'000'000'000;
std::string sample_stream(const std::string& sampler, std::int64_t clone) { return fmt::format("{}/{}", sampler, clone); }

struct SampleRun {
  std::vector<Generation> generations;
  std::size_t left = 0;
  std::vector<StopTexts> stops;
};

SamplingResult result_of_samples(SampleRun& run, const SamplingRequest& wanted) {
  SamplingResult out;
  for (Generation& g : run.generations) {
    if (g.finish == FinishReason::error) fail(ErrorCode::numeric, "{}", g.error);
    if (g.finish == FinishReason::cancelled) fail(ErrorCode::cancelled, "the sample was cancelled");
    SampledSequence sequence;
    for (GeneratedToken& t : g.tokens) {
      sequence.tokens.push_back(t.id);
      sequence.logprobs.push_back(t.sampling_logprob);
      if (wanted.topk_sample_logprobs > 0) sequence.top.push_back(std::move(t.top));
    }
    sequence.stopped = g.finish == FinishReason::stop;
    out.sequences.push_back(std::move(sequence));
  }
  const Generation& first = run.generations.front();
  out.cached_tokens = first.cached_tokens;
  if (wanted.prompt_logprobs) {
    const float none = std::numeric_limits<float>::quiet_NaN();
    out.prompt_logprobs.assign(1, none);
    out.prompt_logprobs.insert(out.prompt_logprobs.end(), first.prompt_logprobs.begin(), first.prompt_logprobs.end());
    if (wanted.prompt_logprobs_last_n) {
      const auto hidden = static_cast<std::ptrdiff_t>(out.prompt_logprobs.size()) - static_cast<std::ptrdiff_t>(*wanted.prompt_logprobs_last_n);
      std::fill_n(out.prompt_logprobs.begin(), std::max<std::ptrdiff_t>(hidden, 0), none);
    }
  }
  if (wanted.topk_prompt_logprobs > 0) {
    out.prompt_top.resize(1);
    for (const auto& top : first.prompt_top_logprobs) out.prompt_top.push_back(top);
    if (wanted.prompt_logprobs_last_n)
      for (std::size_t i = 0; i + static_cast<std::size_t>(*wanted.prompt_logprobs_last_n) < out.prompt_top.size(); ++i) out.prompt_top[i].clear();
    for (auto& top : out.prompt_top) top.resize(std::min(top.size(), static_cast<std::size_t>(wanted.topk_prompt_logprobs)));
  }
  out.prompt_target_logprobs = std::move(run.generations.front().prompt_target_logprobs);
  out.prompt_draws = std::move(run.generations.front().prompt_draws);
  for (SampledSequence& s : out.sequences)
    for (auto& top : s.top) top.resize(std::min(top.size(), static_cast<std::size_t>(wanted.topk_sample_logprobs)));
  return out;
}

void check_sample(const SamplingRequest& wanted, std::int64_t max_positions) {
  const auto within = [](const char* name, std::int64_t value, std::int64_t low, std::int64_t high) {
    if (value < low || value > high) fail(ErrorCode::invalid_argument, "{} is {}, allowed is {} to {}", name, value, low, high);
  };
  constexpr std::int64_t kMostSamples = 1024;
  within("num_samples", wanted.num_samples, 1, kMostSamples);
  within("topk_prompt_logprobs", wanted.topk_prompt_logprobs, 0, SamplingParameters::kMaxTopLogprobs);
  within("topk_sample_logprobs", wanted.topk_sample_logprobs, 0, SamplingParameters::kMaxTopLogprobs);
  within("prompt_alt_tokens_k", wanted.prompt_draws, 0, Request::kMaxPromptDraws);
  constexpr std::int64_t kMostStops = 64, kLongestStop = 1024;
  if (wanted.stop_texts) {
    within("the number of sampling_params.stop", static_cast<std::int64_t>(wanted.stop_texts->size()), 0, kMostStops);
    for (const std::string& stop : *wanted.stop_texts) within("the bytes of a text of sampling_params.stop", static_cast<std::int64_t>(stop.size()), 0, kLongestStop);
  }
  if (wanted.stop_tokens) within("the number of sampling_params.stop", static_cast<std::int64_t>(wanted.stop_tokens->size()), 0, kMostStops);
  if (wanted.max_tokens) within("sampling_params.max_tokens", *wanted.max_tokens, 1, std::numeric_limits<std::int32_t>::max());
  const auto length = static_cast<std::int64_t>(wanted.prompt.size());
  within("the number of prompt tokens", length, 1, max_positions - 1);
  if (wanted.prompt_logprobs_last_n) {
    if (!wanted.prompt_logprobs) fail(ErrorCode::invalid_argument, "prompt_logprobs_last_n is given without prompt_logprobs");
    within("prompt_logprobs_last_n", *wanted.prompt_logprobs_last_n, 1, std::max<std::int64_t>(1, length - 1));
  }
}

}  // namespace

std::string TrainingService::sample(const std::string& owner, const std::string& id, std::int64_t sequence, const SamplingRequest& wanted, Encode<SamplingResult> encode) {
  const std::shared_ptr<Sampler> sampler = find_sampler(owner, id);
  std::string request;
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) fail(ErrorCode::cancelled, "the server stops; try again when it is back");
    if (const std::string* same = numbers_seen_.find(owner, id, sequence)) return *same;
    request = futures_.create(owner, id, [this, stream = sample_stream(id, sequence / kClone)](const std::string& done, const Outcome& outcome) {
      feed_.add(stream, {done, outcome.failed(), static_cast<std::int64_t>(outcome.bytes.size())});
    });
    numbers_seen_.put(owner, id, sequence, request);
  }
  try {
    begin_sample(owner, request, weights_of_sampler(owner, id), wanted, std::move(encode));
  } catch (const Error& e) {
    if (e.code() == ErrorCode::resource_exhausted) {  // not taken: it may come again
      const std::lock_guard lock(mutex_);
      numbers_seen_.erase(id, sequence);
      futures_.fail(request, e);
      throw;
    }
    futures_.fail(request, e);
  }
  return request;
}

void TrainingService::begin_sample(const std::string& owner, const std::string& request, const SamplerWeights& weights, const SamplingRequest& wanted, Encode<SamplingResult> encode) {
  const std::int64_t max_positions = base_->opened.runtime->max_positions;
  check_sample(wanted, max_positions);
  Request one;
  one.prompt = wanted.prompt;
  one.weights = weights.weights;
  one.adapter = weights.adapter;
  one.prefix_owner = generation_->prefix_owner(owner);
  one.prompt_logprobs = wanted.prompt_logprobs || wanted.topk_prompt_logprobs > 0 || wanted.prompt_targets_per_row > 0 || wanted.prompt_draws > 0;
  one.prompt_targets = wanted.prompt_targets;
  one.prompt_targets_per_row = static_cast<std::int32_t>(wanted.prompt_targets_per_row);
  one.prompt_draws = static_cast<std::int32_t>(wanted.prompt_draws);
  one.sampling.temperature = wanted.temperature;
  one.sampling.top_p = wanted.top_p;
  one.sampling.top_k = wanted.top_k;
  one.sampling.seed = wanted.seed ? *wanted.seed : random_seed();
  one.sampling.top_logprobs = static_cast<std::int32_t>(std::max(wanted.topk_prompt_logprobs, wanted.topk_sample_logprobs));
  const std::int64_t room = max_positions - static_cast<std::int64_t>(wanted.prompt.size());
  one.sampling.max_tokens = static_cast<std::int32_t>(std::min(wanted.max_tokens.value_or(room), room));
  if (wanted.stop_tokens) one.sampling.stop_tokens = *wanted.stop_tokens;
  else if (!wanted.stop_texts) one.sampling.stop_tokens = generation_->end_tokens();
  auto run = std::make_shared<SampleRun>();
  for (const std::int32_t target : wanted.prompt_targets)
    if (target >= base_->opened.loaded.model->facts().vocabulary)
      fail(ErrorCode::invalid_argument, "target_prompt_logprobs holds {}, allowed are token ids from 0 to {}, and -1 for none", target, base_->opened.loaded.model->facts().vocabulary - 1);
  run->left = static_cast<std::size_t>(wanted.num_samples);
  run->generations.resize(run->left);
  if (wanted.stop_texts && !wanted.stop_texts->empty()) {
    generation_->tokenizer();  // an error without one
    for (const std::string& stop : *wanted.stop_texts)
      if (stop.empty()) fail(ErrorCode::invalid_argument, "sampling_params.stop holds an empty text, allowed are texts of at least one character");
    run->stops.assign(run->left, StopTexts(base_->opened.tokenizer, *wanted.stop_texts));
  }
  std::vector<Request> requests;
  for (std::size_t i = 0; i < run->left; ++i) {
    requests.push_back(one);
    requests.back().sampling.sample_index = static_cast<std::int32_t>(i);
    if (i == 0) continue;
    requests.back().prompt_logprobs = false;
    requests.back().prompt_targets = {};
    requests.back().prompt_targets_per_row = requests.back().prompt_draws = 0;
  }
  GenerationService::OnTokenOf on_token;
  if (!run->stops.empty()) on_token = [run](std::size_t i, const GeneratedToken& token) { return !run->stops[i].ended_by(token.id); };
  {
    const std::lock_guard lock(mutex_);
    samples_[request] = {};
  }
  std::vector<std::uint64_t> ids;
  try {
    ids = generation_->generate_all(std::move(requests), std::move(on_token), [this, run, request, wanted, encode = std::move(encode)](std::size_t i, Generation&& generation) {
      run->generations[i] = std::move(generation);
      if (--run->left > 0) return;
      {
        const std::lock_guard lock(mutex_);
        samples_.erase(request);
      }
      try {
        futures_.resolve(request, encode(result_of_samples(*run, wanted)));
      } catch (const std::exception& e) {
        futures_.fail(request, e);
      }
    });
  } catch (...) {
    const std::lock_guard lock(mutex_);
    samples_.erase(request);
    throw;
  }
  const std::lock_guard lock(mutex_);
  if (const auto under_way = samples_.find(request); under_way != samples_.end()) under_way->second = std::move(ids);
}

void TrainingService::cancel_sample(const std::string& owner, const std::string& request) {
  std::vector<std::uint64_t> ids;
  {
    const std::lock_guard lock(mutex_);
    const auto found = samples_.find(request);
    if (found == samples_.end() || !futures_.belongs(request, owner)) return;
    ids = found->second;
  }
  for (const std::uint64_t id : ids) generation_->cancel(id);
}

std::string TrainingService::feed_of_sampler(const std::string& owner, const std::string& id, std::int64_t clone) {
  const std::shared_ptr<Sampler> found = find_sampler(owner, id);
  const std::lock_guard lock(mutex_);
  found->used_at = Clock::now();  // who waits for its samples uses it
  heard_.hear(found->record.session, owner);
  return sample_stream(id, clone);
}

}  // namespace lockstep
