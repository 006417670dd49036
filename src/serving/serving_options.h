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
  bool share_prefixes = false;                          // all owners share cached prompts (prefix_owner)
  std::size_t grammar_bytes = Grammars::kKeptBytes;     // for cached grammars, and as much again for their masks
  std::size_t response_bytes = std::size_t{256} << 20;  // for answers that an API stores
  // Called with a key's tokens: of prompts when submitted, of answers when they end. Any thread.
  std::function<void(const std::string& key, std::int64_t tokens)> count_tokens = {};
};

}  // namespace lockstep
