#include "planning/memory_verdict.h"

#include <algorithm>
#include <functional>

#include "base/error.h"
#include "base/free_memory.h"
#include "model/default_context.h"

namespace lockstep {
namespace {
constexpr std::size_t kMostRemedies = 3;
constexpr std::int64_t kShortest = 64;  // tokens: nothing shorter is suggested

AvailableMemory available(std::int64_t megabytes, std::int64_t percent) {
  if (megabytes > 0) return {megabytes << 20, "--memory-megabytes"};
  const FreeMemory free = free_memory();
  if (free.limit.empty()) return {-1, "nobody knows what is free here"};
  const std::string all = fmt::format("{:.1f} MB that are free here ({})", static_cast<double>(free.bytes) / 1e6, free.limit);
  return {free.bytes / 100 * percent, percent == 100 ? "of " + all : fmt::format("{}% of {}", percent, all)};
}

std::int64_t weights_of(const std::vector<MemoryPlan>& ranks) {
  std::int64_t bytes = 0;
  for (const MemoryPlan& rank : ranks) bytes += rank.peak[static_cast<std::size_t>(MemoryCategory::weights)];
  return bytes;
}

std::int64_t training_need(const RuntimeSettings& settings, const TrainingPlan& plan) {
  const std::vector<MemoryPlan> ranks = plan_training(settings, plan);
  std::int64_t steps = 0;
  for (const MemoryPlan& rank : ranks) steps += rank.total;
  const std::int64_t reading = ranks.front().parameters * static_cast<std::int64_t>(sizeof(float)) + weights_of(ranks);
  return program_bytes(0) + std::max(steps, reading);
}

// Adds what fits, until there are enough.
class Remedies {
 public:
  Remedies(MemoryVerdict& verdict) : verdict_(verdict) {}
  bool enough() const { return verdict_.remedies.size() >= kMostRemedies; }
  // Tries one change; what cannot be planned (a profile that this model does not support) is skipped. True: it fits.
  bool offer(const std::string& options, const std::function<std::int64_t()>& need) {
    if (enough()) return false;
    try {
      const std::int64_t needed = need();
      if (needed > verdict_.available) return false;
      verdict_.remedies.push_back({options, needed});
      return true;
    } catch (const Error&) {
      return false;
    }
  }

 private:
  MemoryVerdict& verdict_;
};

// The largest of 1..most-1 that fits, or 0; `need` grows with it.
std::int64_t largest_that_fits(std::int64_t most, std::int64_t available, const std::function<std::int64_t(std::int64_t)>& need) {
  std::int64_t fits = 0, beyond = most;
  while (beyond - fits > 1) {
    const std::int64_t middle = fits + (beyond - fits) / 2;
    (need(middle) <= available ? fits : beyond) = middle;
  }
  return fits;
}
}  // namespace

AvailableMemory memory_for_training(std::int64_t megabytes) { return available(megabytes, 100); }
AvailableMemory memory_for_serving(std::int64_t megabytes) { return available(megabytes, kMemoryPercent); }

MemoryVerdict judge_training(const RuntimeSettings& settings, const TrainingPlan& plan, const AvailableMemory& memory) {
  MemoryVerdict verdict{.needed = training_need(settings, plan), .available = memory.bytes, .remedies = {}};
  if (verdict.fits()) return verdict;
  Remedies remedies(verdict);
  // Each change alone, then all of them, then shorter sequences in addition.
  struct Change {
    const char* option;
    bool idle;
    void (*make)(TrainerOptions&);
  };
  const Change changes[] = {
      {"--checkpoint-activations", plan.trainer.checkpoint_activations, [](TrainerOptions& o) { o.checkpoint_activations = true; }},
      {"--micro-batch 1", plan.trainer.micro_batch == 1 || plan.sequences == 1, [](TrainerOptions& o) { o.micro_batch = 1; }},
      {"--optimizer-state file", !plan.trainer.optimizer_folder.empty(), [](TrainerOptions& o) { o.optimizer_folder = "."; }},
  };
  TrainingPlan all = plan;
  std::string options;
  bool found = false;
  for (const Change& change : changes) {
    if (change.idle) continue;
    TrainingPlan alone = plan;
    change.make(alone.trainer);
    found = remedies.offer(change.option, [&] { return training_need(settings, alone); }) || found;
    change.make(all.trainer);
    options += (options.empty() ? "" : " ") + std::string(change.option);
    if (!found && options != change.option) found = remedies.offer(options, [&] { return training_need(settings, all); });
  }
  for (all.length /= 2; !found && all.length >= kShortest; all.length /= 2)
    found = remedies.offer(fmt::format("{}{}--length {}", options, options.empty() ? "" : " ", all.length), [&] { return training_need(settings, all); });
  return verdict;
}

std::int64_t planned_context(const RuntimeSettings& settings) { return context_or_default(settings.context, planned_model(settings)->facts().max_positions); }

ServingPlan with_cache(ServingPlan plan) {
  if (plan.engine.cache_bytes == 0) plan.engine.cache_pages = plan.sequences * ((plan.length + plan.engine.page_size - 1) / plan.engine.page_size);
  return plan;
}

MemoryVerdict judge_serving(const RuntimeSettings& settings, const ServingPlan& plan, const ServingMemoryOptions& options, const AvailableMemory& memory) {
  const auto need = [&](const RuntimeSettings& runtime, ServingPlan wanted) {
    wanted.engine.max_sequences = wanted.sequences;
    return least_serving_memory(runtime, with_cache(wanted), options);
  };
  MemoryVerdict verdict{.needed = need(settings, plan), .available = memory.bytes, .remedies = {}};
  if (verdict.fits()) return verdict;
  Remedies remedies(verdict);
  ServingPlan other = plan;
  const auto with_sequences = [&](std::int64_t n) { return other.sequences = n, need(settings, other); };
  if (const std::int64_t n = largest_that_fits(plan.sequences, memory.bytes, with_sequences); n > 0)
    remedies.offer(fmt::format("--sequences {}", n), [&] { return with_sequences(n); });
  other = plan;
  const auto with_length = [&](std::int64_t n) { return other.length = n, need(settings, other); };
  if (const std::int64_t n = largest_that_fits(plan.length, memory.bytes, [&](std::int64_t m) { return with_length(std::max<std::int64_t>(2, m)); });
      n >= kShortest)
    remedies.offer(fmt::format("--length {}", n), [&] { return with_length(n); });
  for (const char* profile : {"cpu-fp8-base", "cpu-int4-base"}) {
    RuntimeSettings low_bit = settings;
    low_bit.profile = profile;
    if (remedies.offer(fmt::format("--profile {}", profile), [&] { return need(low_bit, plan); })) break;
  }
  return verdict;
}

}  // namespace lockstep
