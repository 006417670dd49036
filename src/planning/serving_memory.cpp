#include "planning/serving_memory.h"

#include <algorithm>

#include "base/error.h"
#include "base/free_memory.h"
#include "base/log.h"
#include "base/thread_pool.h"
#include "checkpoint/reading_memory.h"
#include "engine/drafts/mtp_steps.h"
#include "model/compute_copy.h"
#include "model/default_context.h"
#include "tensor/memory_pool.h"

namespace lockstep {

std::int64_t program_bytes(std::int64_t total) {
  constexpr std::int64_t kProgram = std::int64_t{64} << 20;  // threads, text, the store, blocks too small for the pool
  return kProgram + total / 16;                              // fragmentation, and overlap of host images with the pool's idle chunks
}

std::int64_t response_bytes_of(std::int64_t total) { return std::min(total / 64, std::int64_t{256} << 20); }

std::int64_t automatic_cache(std::int64_t left, std::int64_t position, std::int64_t context, bool training) {
  const std::int64_t request = position * context;
  const std::int64_t least = std::min(kSmallCache, request), most = std::max(kSmallCache, kCacheRequests * request);
  return std::clamp(left / 100 * (training ? kTrainingCachePercent : kCachePercent), least, most);
}

namespace {
// Memory of serving steps besides weights and cache, for any cache size: eight prompts side by side.
ServingPlan usual_plan(const EngineOptions& engine, std::int64_t positions) {
  return {.sequences = 8, .length = std::min<std::int64_t>(1024, positions), .engine = engine};
}

struct RankSums {
  std::int64_t weights = 0, cache = 0, all = 0;
  std::int64_t steps() const { return all - weights - cache; }
};
RankSums sums_of(const std::vector<MemoryPlan>& ranks) {
  RankSums sums;
  for (const MemoryPlan& rank : ranks) {
    sums.weights += rank.peak[static_cast<std::size_t>(MemoryCategory::weights)];
    sums.cache += rank.peak[static_cast<std::size_t>(MemoryCategory::cache)];
    sums.all += rank.total;
  }
  return sums;
}

std::int64_t reading_of(const RuntimeSettings& settings, const Model& model) {
  return reading_bytes(model.manifest(), settings.threads > 0 ? settings.threads : available_processors());
}

// What a further deployment claims for its device's memory pool (tensor/memory_pool.h), whose last chunk may be unused up to so many bytes. The first
// model's pool is the program's own, and is not claimed here.
constexpr std::int64_t kLeastPool = std::int64_t{32} << 20;

// The plan of a model before the size of its cache is known.
struct PlannedServing {
  std::shared_ptr<const Model> model;
  ServingPlan plan;
  RankSums small;  // what all ranks hold, with a cache that is just enough for the plan's sequences
  std::int64_t positions = 0, position_bytes = 0;
};
PlannedServing planned_serving(const RuntimeSettings& settings, const EngineOptions& engine) {
  PlannedServing planned{.model = planned_model(settings)};
  planned.positions = context_or_default(settings.context, planned.model->facts().max_positions);
  planned.position_bytes = cache_bytes_a_position(*planned.model, profile_by_name(settings.profile), engine);
  planned.plan = usual_plan(engine, planned.positions);
  planned.plan.engine.cache_pages = planned.plan.sequences * ((planned.plan.length + engine.page_size - 1) / engine.page_size);
  planned.small = sums_of(plan_serving(settings, planned.plan));
  return planned;
}
}  // namespace

std::int64_t least_deployment_cache(const RuntimeSettings& settings, const EngineOptions& engine) {
  const PlannedServing planned = planned_serving(settings, engine);
  return std::min(kSmallCache, planned.position_bytes * planned.positions);
}

std::int64_t least_deployment_bytes(const RuntimeSettings& settings, const EngineOptions& engine) {
  const PlannedServing planned = planned_serving(settings, engine);
  return kLeastPool + planned.small.weights + planned.small.steps() + std::min(kSmallCache, planned.position_bytes * planned.positions);
}

DeploymentMemory admit_deployment(MemoryLedger& ledger, const RuntimeSettings& settings, const EngineOptions& engine, std::int64_t cache_bytes,
                                  std::optional<std::int64_t> shareable) {
  DeploymentMemory memory;
  memory.cache_bytes = cache_bytes > 0 ? cache_bytes : kSmallCache;
  if (ledger.total() >= MemoryLedger::kUnlimited) return memory;
  PlannedServing planned = planned_serving(settings, engine);
  ledger.describe("deployments", "delete some (DELETE /v1/deployments/NAME)");
  const std::string what = fmt::format("the model '{}'", settings.model);
  std::int64_t parameters = 0, alone = 0;  // claimed by who reads them, a parameter at a time
  if (shareable) {
    for (const Parameter& p : planned.model->manifest().parameters()) {
      const std::int64_t bytes = computed_bytes(p, profile_by_name(settings.profile));
      parameters += bytes;
      alone = std::max(alone, bytes);
    }
    alone = std::max(alone, parameters - *shareable);
  }
  memory.claims.push_back(ledger.claim("deployments", {}, planned.small.weights - parameters + kLeastPool, what));
  MemoryLedger::Claim room = ledger.claim("deployments", {}, alone, what);  // until all is refused that will not fit
  ledger.claim("reading", {}, reading_of(settings, *planned.model), fmt::format("reading the model '{}' (with fewer --threads it is less)", settings.model));
  if (cache_bytes == 0)
    memory.cache_bytes = automatic_cache(ledger.free() - (parameters - alone) - planned.small.steps(), planned.position_bytes, planned.positions, false);
  planned.plan.engine.cache_pages = 0;
  planned.plan.engine.cache_bytes = memory.cache_bytes;
  memory.claims.push_back(ledger.claim("deployments", {}, sums_of(plan_serving(settings, planned.plan)).all - planned.small.weights,
                                       fmt::format("the key-value cache of '{}' (--cache-megabytes), with the steps of serving,", settings.model)));
  return memory;
}

std::int64_t least_serving_memory(const RuntimeSettings& settings, const ServingPlan& plan, const ServingMemoryOptions& options) {
  const RankSums sums = sums_of(plan_serving(settings, plan));
  const std::shared_ptr<const Model> model = planned_model(settings);
  const std::int64_t reading = reading_of(settings, *model);
  const std::int64_t masters = options.training ? loaded_bytes(*model, profile_by_name(settings.profile)).masters : 0;
  const auto fits = [&](std::int64_t total) {
    const std::int64_t running =
        sums.all - sums.weights + std::min(options.answer_bytes, total / 16) + std::min(options.upload_bytes, total / 8) + response_bytes_of(total);
    return program_bytes(total) + sums.weights + masters + std::max(running, reading) <= total;
  };
  std::int64_t least = std::int64_t{1} << 20;
  while (!fits(least)) least *= 2;
  for (std::int64_t step = least / 4; step > 0; step /= 2)  // between the half, which does not fit, and this
    if (fits(least - step)) least -= step;
  return least;
}

ServingMemory admit_serving(const RuntimeSettings& settings, const EngineOptions& engine, const ServingMemoryOptions& options) {
  ServingMemory memory;
  memory.answer_bytes = options.answer_bytes;
  memory.upload_bytes = options.upload_bytes;
  memory.response_bytes = response_bytes_of(MemoryLedger::kUnlimited);
  memory.cache_bytes = options.cache_bytes > 0 ? options.cache_bytes : kSmallCache;
  const FreeMemory free = free_memory();
  if (settings.device != "cpu" || settings.backend == "traced" || (options.megabytes == 0 && free.limit.empty())) {
    memory.ledger = std::make_shared<MemoryLedger>();
    return memory;
  }
  const std::int64_t total = options.megabytes > 0 ? options.megabytes << 20 : free.bytes / 100 * kMemoryPercent;
  if (!free.limit.empty() && total > free.bytes)
    log_warning("the server may take more memory than is free",
                {{"memory_megabytes", total >> 20}, {"free_megabytes", free.bytes >> 20}, {"limit", free.limit}});
  MemoryLedger& ledger = *(memory.ledger = std::make_shared<MemoryLedger>(total));
  memory.answer_bytes = std::min(options.answer_bytes, total / 16);
  memory.upload_bytes = std::min(options.upload_bytes, total / 8);
  memory.response_bytes = response_bytes_of(total);
  ledger.describe("cache", "--cache-megabytes makes it smaller");
  ledger.describe("answers", "--max-held-bytes makes them fewer");
  ledger.describe("uploads", "--body-megabytes makes them fewer");
  const auto claim = [&](const char* category, std::int64_t bytes, const std::string& what) {
    memory.fixed.push_back(ledger.claim(category, {}, bytes, what));
  };
  claim("program", program_bytes(total), "the program");

  PlannedServing planned = planned_serving(settings, engine);
  const Model& model = *planned.model;
  ServingPlan& plan = planned.plan;
  const RankSums& small = planned.small;
  const LoadedBytes loaded = loaded_bytes(model, profile_by_name(settings.profile));
  claim("base", small.weights, fmt::format("the model '{}'", settings.model));
  if (options.training)  // read when a model of all parameters begins, or a merged one is written
    claim("base", loaded.masters, fmt::format("the model '{}' in fp32", settings.model));
  // What reading takes is free again before there is anything else, and has to fit until then.
  ledger.claim("reading", {}, reading_of(settings, model), fmt::format("reading the model '{}' (with fewer --threads it is less)", settings.model));
  claim("answers", memory.answer_bytes, "answers that wait for their clients (--max-held-bytes)");
  claim("uploads", memory.upload_bytes, "bodies of requests (--body-megabytes)");
  claim("responses", memory.response_bytes, "responses that are kept for their clients");
  if (options.cache_bytes == 0)
    memory.cache_bytes = automatic_cache(ledger.free() - small.steps() - options.beside_bytes, planned.position_bytes, planned.positions, options.training);
  plan.engine.cache_pages = 0;
  plan.engine.cache_bytes = memory.cache_bytes;
  claim("cache", sums_of(plan_serving(settings, plan)).all - small.weights, "the key-value cache (--cache-megabytes), with the steps of serving,");
  // Memory outside of buffers is not the pool's.
  limit_pooled_memory(total - program_bytes(0) - (options.training ? loaded.masters : 0) - memory.answer_bytes - memory.upload_bytes - memory.response_bytes);
  return memory;
}

}  // namespace lockstep
