#include "host/training_sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/entropy.h"
#include "base/error.h"
#include "serving/completion.h"
#include "serving/kept_requests.h"
#include "serving/on_executor.h"

namespace lockstep {
namespace {

// A client's copies of a sampler number their requests from n * 10^9 on.
constexpr std::int64_t kClone = 1'000'000'000;
std::string sample_stream(const std::string& sampler, std::int64_t clone) { return fmt::format("{}/{}", sampler, clone); }

struct SampleRun {
  std::vector<CompletionEnd> ends;
  std::size_t left = 0;
};

SamplingResult result_of_samples(SampleRun& run, const SamplingRequest& wanted) {
  SamplingResult out;
  for (CompletionEnd& end : run.ends) {
    Generation& g = end.generation;
    if (end.finish == FinishReason::error) fail(ErrorCode::numeric, "{}", g.error);
    if (end.finish == FinishReason::cancelled) fail(ErrorCode::cancelled, "the sample was cancelled");
    SampledSequence sequence;
    for (GeneratedToken& t : g.tokens) {
      sequence.tokens.push_back(t.id);
      sequence.logprobs.push_back(t.sampling_logprob);
      if (wanted.topk_sample_logprobs > 0) sequence.top.push_back(std::move(t.top));
    }
    sequence.stopped = end.finish == FinishReason::stop;
    out.sequences.push_back(std::move(sequence));
  }
  Generation& first = run.ends.front().generation;
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
  out.prompt_target_logprobs = std::move(first.prompt_target_logprobs);
  out.prompt_draws = std::move(first.prompt_draws);
  for (SampledSequence& s : out.sequences)
    for (auto& top : s.top) top.resize(std::min(top.size(), static_cast<std::size_t>(wanted.topk_sample_logprobs)));
  return out;
}

// What only this wire asks for; the rest is the order's to check.
void check_sample(const GenerationService& generation, const std::string& owner, const SamplingRequest& wanted) {
  const auto within = [](const char* name, std::int64_t value, std::int64_t low, std::int64_t high) {
    if (value < low || value > high) fail(ErrorCode::invalid_argument, "{} is {}, allowed is {} to {}", name, value, low, high);
  };
  within("topk_prompt_logprobs", wanted.topk_prompt_logprobs, 0, SamplingParameters::kMaxTopLogprobs);
  within("topk_sample_logprobs", wanted.topk_sample_logprobs, 0, SamplingParameters::kMaxTopLogprobs);
  within("prompt_alt_tokens_k", wanted.prompt_draws, 0, Request::kMaxPromptDraws);
  if (wanted.keep_forward.value_or(false))
    if (const std::string why = why_not_kept(generation, owner); !why.empty()) fail(ErrorCode::unsupported, "keep_forward is true, and {}", why);
  if (wanted.max_tokens) within("sampling_params.max_tokens", *wanted.max_tokens, 1, std::numeric_limits<std::int32_t>::max());
  if (!wanted.prompt_logprobs_last_n) return;
  if (!wanted.prompt_logprobs) fail(ErrorCode::invalid_argument, "prompt_logprobs_last_n is given without prompt_logprobs");
  within("prompt_logprobs_last_n", *wanted.prompt_logprobs_last_n, 1, std::max<std::int64_t>(1, static_cast<std::int64_t>(wanted.prompt.size()) - 1));
}

CompletionOrder order_of(const SamplingRequest& wanted) {
  return {.prompts = {{wanted.prompt, "prompt"}},
          .samples = wanted.num_samples,
          .sampling = {.temperature = wanted.temperature,
                       .top_p = wanted.top_p,
                       .top_k = wanted.top_k,
                       .seed = wanted.seed ? *wanted.seed : random_seed(),
                       .top_logprobs = static_cast<std::int32_t>(std::max(wanted.topk_prompt_logprobs, wanted.topk_sample_logprobs))},
          .max_tokens = wanted.max_tokens ? wanted.max_tokens : std::numeric_limits<std::int32_t>::max(),
          .shorten = true,
          .least_tokens = wanted.scores_prompt() ? 0 : 1,  // a prompt as long as the context can be scored; a token behind it has no place
          .stop_tokens = wanted.stop_tokens.value_or(std::vector<std::int32_t>{}),
          .model_ends = !wanted.stop_tokens && !wanted.stop_texts,
          .stops = wanted.stop_texts.value_or(std::vector<std::string>{}),
          .prompt_logprobs = wanted.scores_prompt(),
          .prompt_targets = wanted.prompt_targets,
          .prompt_targets_per_row = static_cast<std::int32_t>(wanted.prompt_targets_per_row),
          .prompt_draws = static_cast<std::int32_t>(wanted.prompt_draws),
          .prompt_told_once = true,
          .spelling = {{"samples", "num_samples"},
                       {"max_tokens", "sampling_params.max_tokens"},
                       {"temperature", "sampling_params.temperature"},
                       {"top_p", "sampling_params.top_p"},
                       {"top_k", "sampling_params.top_k"},
                       {"stop", "sampling_params.stop"},
                       {"stop_tokens", "sampling_params.stop"},
                       {"prompt_targets", "target_prompt_logprobs"},
                       {"prompt_draws", "prompt_alt_tokens_k"}}};
}

}  // namespace

std::string TrainingSampling::sample(const std::string& owner, const std::string& id, std::int64_t sequence, const SamplingRequest& wanted,
                                     Encode<SamplingResult> encode) {
  const SamplerRecord sampler = samplers_.find(owner, id);
  std::string request;
  {
    const Intake::Entry entry = commons_.intake.enter();
    entry.check("; try again when it is back");
    const auto numbered = commons_.numbers.find_or(owner, id, sequence, [&] {
      sessions_.check_takes_work(sampler.session);
      const auto told = [this, owner, stream = sample_stream(id, sequence / kClone)](const std::string& done, const Outcome& outcome) {
        commons_.feed.add(owner, stream, {done, outcome.failed(), static_cast<std::int64_t>(outcome.bytes.size())});
      };
      return commons_.futures.create(owner, id, told);
    });
    if (!numbered.second) return numbered.first;
    request = numbered.first;
  }
  try {
    begin(owner, request, samplers_.weights(owner, id), wanted, std::move(encode));
  } catch (const Error& e) {
    if (e.code() == ErrorCode::resource_exhausted) {  // not taken: it may come again
      commons_.numbers.erase(id, sequence);
      commons_.futures.fail(request, e);
      throw;
    }
    commons_.futures.fail(request, e);
  }
  return request;
}

void TrainingSampling::begin(const std::string& owner, const std::string& request, const SamplerWeights& weights, const SamplingRequest& wanted,
                             Encode<SamplingResult> encode) {
  check_sample(*commons_.generation, owner, wanted);
  CompletionOrder order = order_of(wanted);
  order.weights = weights.weights;
  order.adapter = weights.adapter;
  order.prefix_owner = commons_.generation->callers().prefix_owner(owner);
  order.account = commons_.generation->callers().account(owner, WorkClass::rollouts);
  order.keep_forward = keeps_forward(*commons_.generation, owner, wanted.keep_forward, true);  // whoever samples here trains
  const auto run = std::make_shared<OfExecutor<SampleRun>>();
  {
    const auto under_way = under_way_.lock();
    (*under_way)[request] = {};
  }
  std::vector<std::uint64_t> ids;
  try {
    const auto on_end = [this, run, request, wanted, encode = std::move(encode)](const OnExecutor& on, std::size_t i, CompletionEnd&& end) {
      SampleRun& done = run->at(on);
      if (done.ends.empty()) {
        done.left = static_cast<std::size_t>(wanted.num_samples);
        done.ends.resize(done.left);
      }
      done.ends[i] = std::move(end);
      if (--done.left > 0) return;
      {
        const auto under_way = under_way_.lock();
        under_way->erase(request);
      }
      try {
        commons_.futures.resolve(request, encode(result_of_samples(done, wanted)));
      } catch (const std::exception& e) {
        commons_.futures.fail(request, e);
      }
    };
    ids = start_completion(*commons_.generation, order, {}, on_end);
  } catch (...) {
    const auto under_way = under_way_.lock();
    under_way->erase(request);
    throw;
  }
  const auto under_way = under_way_.lock();
  if (const auto found = under_way->find(request); found != under_way->end()) found->second = std::move(ids);
}

void TrainingSampling::cancel(const std::string& owner, const std::string& request) {
  std::vector<std::uint64_t> ids;
  {
    const auto under_way = under_way_.lock();
    const auto found = under_way->find(request);
    if (found == under_way->end() || !commons_.futures.belongs(request, owner)) return;
    ids = found->second;
  }
  for (const std::uint64_t id : ids) commons_.generation->cancel(id);
}

std::string TrainingSampling::feed_of(const std::string& owner, const std::string& id, std::int64_t clone) {
  samplers_.use(owner, id);  // who waits for its samples uses it
  return sample_stream(id, clone);
}

}  // namespace lockstep
