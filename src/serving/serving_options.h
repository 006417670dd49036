// Options of a generation service (serving/serving.h): its engine, its limits, the sizes of its caches. Plain values.
//   GenerationService service(serving_model(opened), {.engine = {.max_sequences = 8}, .max_open = 64});
#pragma once
#include <cstdint>
#include <functional>
#include <string>

#include "base/fair_shares.h"
#include "engine/options.h"
#include "serving/grammars.h"
#include "serving/named_adapters.h"

namespace lockstep {

struct ServingOptions {
  EngineOptions engine;
  std::int64_t max_open = 1024;
  WorkClass priority = WorkClass::live;
  NamedAdapterOptions adapters;
  bool share_prefixes = false;                          // all owners find each other's cached prompts (prefix_owner)
  std::size_t grammar_bytes = Grammars::kKeptBytes;     // of grammars that are kept, and as much of their masks
  std::size_t response_bytes = std::size_t{256} << 20;  // of answers that an API keeps to be asked for again
  // Told of a key's tokens: of prompts as they are taken, of answers as they end. Any thread.
  std::function<void(const std::string& key, std::int64_t tokens)> count_tokens = {};
};

}  // namespace lockstep
