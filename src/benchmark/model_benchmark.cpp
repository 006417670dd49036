#include "benchmark/model_benchmark.h"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <optional>

#include "base/error.h"
#include "base/median.h"
#include "base/philox.h"
#include "base/seconds.h"
#include "benchmark/kernel_groups.h"
#include "benchmark/profile_samples.h"
#include "engine/engine.h"
#include "train/adapter_trainer.h"
#include "train/trainer.h"

namespace lockstep {

namespace {
std::vector<std::int32_t> random_tokens(const OpenedModel& opened, std::int64_t count, std::uint64_t item) {
  RandomSequence random(1, RandomStream::shuffle, item);
  std::vector<std::int32_t> tokens;
  for (std::int64_t i = 0; i < count; ++i)
    tokens.push_back(static_cast<std::int32_t>(random.uniform() * static_cast<double>(opened.model->facts().vocabulary)));
  return tokens;
}

ModelTiming per_second(const Timing& time, std::int64_t tokens) { return {time, tokens, static_cast<double>(tokens) / time.median}; }

double processor_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) { return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6; };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

void require_positions(const OpenedModel& opened, std::int64_t tokens) {
  if (tokens > opened.runtime->max_positions)
    fail(ErrorCode::invalid_argument, "a sequence of {} tokens is longer than the model's context of {}", tokens, opened.runtime->max_positions);
}
}  // namespace

ModelTiming time_prefill(const OpenedModel& opened, std::int64_t tokens, const TimeBudget& budget) {
  require_positions(opened, tokens + 1);
  Engine engine(*opened.runtime, serving_model(opened).weights,
                {.cache_pages = tokens / 16 + 2, .max_batch_rows = tokens, .prefill_chunk = tokens, .prefix_cache = false});
  const std::vector<std::int32_t> prompt = random_tokens(opened, tokens, 0);
  return per_second(time_repeated(budget, [&] { engine.generate({{.prompt = prompt, .sampling = {.temperature = 0, .max_tokens = 1}}}); }), tokens);
}

ModelTiming time_decode(const OpenedModel& opened, const DecodeCase& shape, const TimeBudget& budget) {
  // As many steps as the context has room for; a run that uses them up begins anew. While the last stream's prompt is computed,
  // the first one has made a token a forward.
  constexpr std::int64_t kRows = 512;
  const std::int64_t skew = shape.prompt * shape.streams / 128 + shape.streams + 2;
  const std::int64_t steps = std::min<std::int64_t>(opened.runtime->max_positions - shape.prompt, skew + 512);
  if (steps <= skew)
    fail(ErrorCode::invalid_argument, "{} streams with a prompt of {} tokens leave no step to time in a context of {}", shape.streams, shape.prompt,
         opened.runtime->max_positions);
  const std::int64_t positions = shape.prompt + steps + 16;
  Engine engine(
      *opened.runtime, serving_model(opened).weights,
      {.cache_pages = shape.streams * (positions / 16 + 1), .max_batch_rows = kRows + shape.streams, .max_sequences = shape.streams, .prefix_cache = false});
  std::int64_t generated = 0;
  std::vector<bool> begun;
  const auto begin = [&] {
    begun.assign(static_cast<std::size_t>(shape.streams), false);
    for (std::int64_t i = 0; i < shape.streams; ++i)
      engine.submit({.prompt = random_tokens(opened, shape.prompt, static_cast<std::uint64_t>(i)),
                     .sampling = {.temperature = 0, .max_tokens = static_cast<std::int32_t>(steps)}},
                    [&generated, &begun, i](std::uint64_t, const GeneratedToken&) {
                      ++generated;
                      begun[static_cast<std::size_t>(i)] = true;
                    });
    // Prompts of many streams take several forwards, in which the first of them go on already.
    while (std::find(begun.begin(), begun.end(), false) != begun.end()) engine.step();
  };
  const auto submitted = std::chrono::steady_clock::now();
  shape.leave_out(begin);
  const double prompt_seconds = seconds_since(submitted);
  const auto step = [&] {
    const std::int64_t before = generated;
    engine.step();
    return generated - before == shape.streams;
  };
  const auto decoded = [&] {
    while (!step()) {  // the streams have ended; the prompts of the new ones are no decoding, and are not timed
      shape.leave_out([&] {
        engine.run_until_idle();
        begin();
      });
    }
  };
  ModelTiming timing = per_second(time_repeated(budget, decoded), shape.streams);
  timing.prompt_seconds = prompt_seconds;
  return timing;
}

ModelTiming time_train(OpenedModel opened, const TrainCase& shape, const TimeBudget& budget) {
  std::vector<std::vector<std::int32_t>> texts = shape.texts;
  for (std::int64_t i = 0; shape.texts.empty() && i < shape.sequences; ++i)
    texts.push_back(random_tokens(opened, shape.length + 1, static_cast<std::uint64_t>(i)));
  std::vector<TrainSequence> data;
  std::int64_t learnt = 0;
  for (const std::vector<std::int32_t>& text : texts) {
    require_positions(opened, static_cast<std::int64_t>(text.size()) - 1);
    data.push_back(TrainSequence::next_token(text));
    learnt += static_cast<std::int64_t>(text.size()) - 1;
  }
  const TrainerOptions options{
      .micro_batch = shape.micro_batch, .checkpoint_activations = shape.checkpoint_activations, .optimizer_folder = shape.optimizer_folder};
  const auto time = [&](auto& trainer) {
    std::optional<double> first_loss;
    std::optional<ProfileSamples> samples;
    if (shape.deposits || shape.by_kernel) samples.emplace();
    std::chrono::steady_clock::time_point began;
    double processor_before = 0;
    std::int64_t steps = 0;
    const auto step = [&] {
      if (steps++ == 1 && samples) {  // not from the first step, which fills caches
        samples->begin();
        began = std::chrono::steady_clock::now();
        processor_before = processor_seconds();
      }
      const double loss = trainer.forward_backward(data, {}).loss;
      if (!first_loss) first_loss = loss;
      trainer.optim_step({.learning_rate = 1e-6});
    };
    ModelTiming timing = per_second(time_repeated(budget, step), learnt);
    if (samples) {
      samples->end();
      timing.busy_processors = (processor_seconds() - processor_before) / seconds_since(began);
    }
    if (shape.deposits) timing.deposit_share = samples->share({"deposit_tile", "finish_bins", "join_bins"});
    if (shape.by_kernel) timing.kernel_shares = samples->shares(kernel_group), timing.samples = samples->count();
    timing.first_loss = *first_loss;
    return timing;
  };
  if (shape.lora_rank == 0) {
    Trainer trainer(*opened.runtime, opened.masters(), options);
    return time(trainer);
  }
  const auto layout = std::make_shared<const AdapterLayout>(opened.model->manifest(), AdapterSettings{.rank = shape.lora_rank});
  AdapterTrainer trainer(std::make_shared<FrozenBase>(*opened.runtime, serving_model(opened).weights, options), layout, initial_adapter(*layout, 1));
  return time(trainer);
}

ModelTiming time_rl(OpenedModel opened, const RlCase& shape, const TimeBudget& budget) {
  require_positions(opened, shape.prompt + shape.tokens);
  Trainer trainer(*opened.runtime, opened.masters(), {.share_prefixes = true});  // as `train rl` does unless told otherwise
  Engine engine(*opened.runtime, trainer.weights(), {.max_sequences = shape.prompts * shape.samples});
  LossOptions loss;
  loss.kind = LossKind::policy;
  std::uint64_t step = 0;
  std::vector<double> rollouts, learning;
  const Timing time = time_repeated(budget, [&] {
    std::vector<Request> requests;
    for (std::int64_t p = 0; p < shape.prompts; ++p)
      for (std::int64_t s = 0; s < shape.samples; ++s)
        requests.push_back({.prompt = random_tokens(opened, shape.prompt, step * 1000 + static_cast<std::uint64_t>(p)),
                            .sampling = {.seed = step, .max_tokens = static_cast<std::int32_t>(shape.tokens), .sample_index = static_cast<std::int32_t>(s)}});
    RandomSequence rewards(2, RandomStream::shuffle, step++);
    const auto rollouts_began = std::chrono::steady_clock::now();
    const std::vector<Generation> generations = engine.generate(requests);
    rollouts.push_back(seconds_since(rollouts_began));
    std::vector<TrainSequence> data;
    for (std::size_t i = 0; i < generations.size(); ++i) {
      std::vector<std::int32_t> tokens = requests[i].prompt;
      for (const GeneratedToken& token : generations[i].tokens) tokens.push_back(token.id);
      TrainSequence d = TrainSequence::next_token(tokens);
      const std::size_t first = requests[i].prompt.size() - 1;
      std::fill(d.weights.begin(), d.weights.begin() + static_cast<std::ptrdiff_t>(first), 0.0f);
      std::fill(d.targets.begin(), d.targets.begin() + static_cast<std::ptrdiff_t>(first), -1);
      d.advantages.assign(d.tokens.size(), rewards.uniform() < 0.5 ? -1.0f : 1.0f);
      d.old_logprobs.assign(d.tokens.size(), 0.0f);
      for (std::size_t t = 0; t < generations[i].tokens.size(); ++t) d.old_logprobs[first + t] = generations[i].tokens[t].sampling_logprob;
      data.push_back(std::move(d));
    }
    const auto learning_began = std::chrono::steady_clock::now();
    trainer.forward_backward(data, loss);
    trainer.optim_step({.learning_rate = 1e-6});
    learning.push_back(seconds_since(learning_began));
    engine.set_weights(trainer.weights());
  });
  ModelTiming timing = per_second(time, shape.prompts * shape.samples * shape.tokens);
  timing.rollout_seconds = median({rollouts.begin() + 1, rollouts.end()});  // the first step fills caches, as in time_repeated
  timing.learning_seconds = median({learning.begin() + 1, learning.end()});
  return timing;
}

std::vector<ModelTiming> time_prefix_sharing(OpenedModel opened, const RlCase& shape, const std::vector<PrefixSharing>& kinds, const TimeBudget& budget) {
  require_positions(opened, shape.prompt + shape.tokens);
  std::unique_ptr<Trainer> whole, sharing;
  for (const PrefixSharing kind : kinds) {
    std::unique_ptr<Trainer>& trainer = kind == PrefixSharing::off ? whole : sharing;
    const bool shares = kind != PrefixSharing::off;
    if (!trainer) trainer = std::make_unique<Trainer>(*opened.runtime, opened.masters(), TrainerOptions{.share_prefixes = shares, .declared_prefixes = shares});
  }
  std::vector<TrainSequence> data, declared;
  for (std::int64_t p = 0; p < shape.prompts; ++p)
    for (std::int64_t s = 0; s < shape.samples; ++s) {
      std::vector<std::int32_t> tokens = random_tokens(opened, shape.prompt, static_cast<std::uint64_t>(p));
      const std::vector<std::int32_t> sample = random_tokens(opened, shape.tokens, static_cast<std::uint64_t>(100000 + p * shape.samples + s));
      tokens.insert(tokens.end(), sample.begin(), sample.end());
      TrainSequence d = TrainSequence::next_token(tokens);
      std::fill_n(d.weights.begin(), shape.prompt - 1, 0.0f);
      std::fill_n(d.targets.begin(), shape.prompt - 1, -1);
      d.advantages.assign(d.tokens.size(), s % 2 ? 1.0f : -1.0f);
      d.old_logprobs.assign(d.tokens.size(), -5.0f);
      data.push_back(d);
      if (shape.prompt > 1) d.prefix_group = p, d.shared_prefix = shape.prompt - 1;
      declared.push_back(std::move(d));
    }
  LossOptions loss;
  loss.kind = LossKind::policy;
  const auto step_of = [&loss](Trainer& trainer, const std::vector<TrainSequence>& fed) {
    return [&loss, &trainer, &fed] {
      trainer.forward_backward(fed, loss);
      trainer.optim_step({.learning_rate = 1e-6});
    };
  };
  std::vector<std::function<void()>> steps;
  for (const PrefixSharing kind : kinds)
    steps.push_back(kind == PrefixSharing::off ? step_of(*whole, data) : step_of(*sharing, kind == PrefixSharing::backward ? declared : data));
  std::vector<ModelTiming> timings;
  for (const Timing& t : time_in_turns(budget, steps)) timings.push_back(per_second(t, shape.prompts * shape.samples * (shape.prompt + shape.tokens - 1)));
  return timings;
}

std::int64_t peak_memory() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::int64_t>(usage.ru_maxrss) * 1024;
}

}  // namespace lockstep
