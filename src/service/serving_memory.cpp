#include "service/serving_memory.h"

#include <algorithm>

#include "base/error.h"
#include "base/free_memory.h"
#include "base/log.h"
#include "checkpoint/json_file.h"
#include "service/memory_plan.h"
#include "tensor/memory_pool.h"

namespace lockstep {

ServingMemory admit_serving(const RuntimeSettings& settings, const EngineOptions& engine, const ServingMemoryOptions& options) {
  constexpr std::int64_t kProgram = std::int64_t{64} << 20;  // threads, text, the store, blocks too small for the pool
  ServingMemory memory;
  memory.answer_bytes = options.answer_bytes;
  memory.upload_bytes = options.upload_bytes;
  const FreeMemory free = free_memory();
  if (settings.device != "cpu" || settings.backend == "traced" || (options.megabytes == 0 && free.limit.empty())) {
    memory.ledger = std::make_shared<MemoryLedger>();
    return memory;
  }
  const std::int64_t total = options.megabytes > 0 ? options.megabytes << 20 : free.bytes / 100 * kMemoryPercent;
  if (!free.limit.empty() && total > free.bytes)
    log_warning("the server may take more memory than is free", {{"memory_megabytes", total >> 20}, {"free_megabytes", free.bytes >> 20}, {"limit", free.limit}});
  MemoryLedger& ledger = *(memory.ledger = std::make_shared<MemoryLedger>(total));
  memory.answer_bytes = std::min(options.answer_bytes, total / 16);
  memory.upload_bytes = std::min(options.upload_bytes, total / 8);
  ledger.describe("cache", "--cache-megabytes makes it smaller");
  ledger.describe("answers", "--max-held-bytes makes them fewer");
  ledger.describe("uploads", "--body-megabytes makes them fewer");
  const auto claim = [&](const char* category, std::int64_t bytes, const std::string& what) { memory.fixed.push_back(ledger.claim(category, {}, bytes, what)); };
  // A sixteenth is lost between blocks, and where a host's images and the pool's idle chunks meet.
  claim("program", kProgram + total / 16, "the program");

  std::int64_t positions = settings.context, weights = 0, all = 0;
  const std::shared_ptr<const Model> model = make_model(read_json_file(std::filesystem::path(settings.model) / "config.json"), {.mla_norm_eps = settings.mla_norm_eps});
  if (positions <= 0) positions = model->max_positions;
  const ServingPlan plan{.sequences = 8, .length = std::min<std::int64_t>(1024, positions), .engine = engine};
  for (const MemoryPlan& rank : plan_serving(settings, plan)) {
    weights += rank.peak[static_cast<std::size_t>(MemoryCategory::weights)];
    all += rank.total;
  }
  const LoadedBytes loaded = loaded_bytes(*model, profile_by_name(settings.profile));
  claim("base", weights, fmt::format("the model '{}'", settings.model));
  memory.masters = ledger.claim("base", {}, loaded.masters, fmt::format("reading the model '{}'", settings.model));
  claim("cache", all - weights, "the key-value cache (--cache-megabytes), with the steps of serving,");
  claim("answers", memory.answer_bytes, "answers that wait for their clients (--max-held-bytes)");
  claim("uploads", memory.upload_bytes, "bodies of requests (--body-megabytes)");
  // What is not in buffers is not the pool's to take.
  limit_pooled_memory(total - kProgram - (options.training ? loaded.masters : 0) - memory.answer_bytes - memory.upload_bytes);
  return memory;
}

}  // namespace lockstep
