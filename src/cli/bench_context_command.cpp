// `lockstep bench context`: what a token costs at given places of a long text. The timed code is in benchmark/long_context.h.
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/signals.h"
#include "benchmark/long_context.h"
#include "benchmark/model_benchmark.h"
#include "cli/commands.h"
#include "cli/common_options.h"

namespace lockstep {

namespace {
nlohmann::ordered_json parts_json(const ContextParts& parts) {
  return {{"ns_a_token", parts.all * 1e9},         {"indexer_ns", parts.indexer * 1e9}, {"selection_ns", parts.selection * 1e9},
          {"attention_ns", parts.attention * 1e9}, {"rest_ns", parts.rest * 1e9},       {"runs", parts.runs}};
}

void print_parts(std::int64_t tokens, const char* kind, const ContextParts& parts) {
  std::printf("%9lld  %-8s %11.0f %11.0f %11.0f %11.0f %11.0f\n", static_cast<long long>(tokens), kind, parts.all * 1e9,
              (parts.indexer - parts.selection) * 1e9, parts.selection * 1e9, parts.attention * 1e9, parts.rest * 1e9);
}
}  // namespace

int bench_context_command(const Arguments& arguments) {
  RuntimeSettings settings;
  TimeBudget time{1, interrupt_token()};
  ContextCase shape;
  std::optional<std::vector<std::int32_t>> places;
  bool json = false, training = false;
  OptionTable table(
      "bench context",
      "Times tokens at the end of long texts: a piece of a prompt, and a decoded token, through a model's layers over a cache that is filled "
      "with random values beforehand. A token's time is split into the indexers' scores, selection, attention and the rest.",
      {"lockstep bench context --model models/countdown-glm --tokens 256,512", "lockstep bench context --model DIR --tokens 4096,65536,1048576 --json"});
  table.integers("tokens", &places, "N,N,...", "Lengths of the text (default 4096,16384,65536)");
  table.integer("window", &shape.window, 1, 1 << 14, "N", "Rows of the piece of a prompt");
  table.flag("training", &training, "Time a training step of each length, too: one sequence, forward, backward, AdamW, with activations recomputed");
  table.number("seconds", &time.seconds, 0.001, 3600, "S", "Time for a case");
  add_runtime_options(table, settings);
  add_json_option(table, &json, "Print one JSON object a length and nothing else");
  if (!table.parse(arguments)) return kExitOk;
  const std::vector<std::int32_t> lengths = places.value_or(std::vector<std::int32_t>{4096, 16384, 65536});
  for (const std::int32_t n : lengths)
    if (n < 1 || n > 1 << 20) throw UsageError(fmt::format("--tokens contains {}, allowed is 1 to {}", n, 1 << 20));
  if (settings.context == 0 && !lengths.empty()) settings.context = *std::max_element(lengths.begin(), lengths.end());
  install_interrupt_handlers();
  const OpenedModel opened = open_model(settings);
  for (const std::int32_t n : lengths) {
    shape.tokens = n;
    const ContextTiming t = time_context(opened, shape, time);
    std::optional<ModelTiming> step;
    if (training) step = time_train(open_model(settings), {.sequences = 1, .length = n, .checkpoint_activations = true}, time);
    if (json) {
      nlohmann::ordered_json line{{"kind", "context"},
                                  {"profile", settings.profile},
                                  {"tokens", n},
                                  {"window", shape.window},
                                  {"prefill", parts_json(t.prefill)},
                                  {"decode", parts_json(t.decode)},
                                  {"cache_bytes_a_token", t.cache_bytes}};
      if (step) line["training_ns_a_token"] = 1e9 * step->time.median / static_cast<double>(step->tokens);
      line["peak_memory_bytes"] = peak_memory();
      std::printf("%s\n", line.dump().c_str());
    } else {
      if (n == lengths.front())
        std::printf("%9s  %-8s %11s %11s %11s %11s %11s   ns a token\n", "position", "rows", "all", "scores", "selection", "attention", "rest");
      print_parts(n, "prompt", t.prefill);
      print_parts(n, "decoded", t.decode);
      if (step) std::printf("%9d  %-8s %11.0f\n", n, "training", 1e9 * step->time.median / static_cast<double>(step->tokens));
    }
    std::fflush(stdout);
  }
  return kExitOk;
}

}  // namespace lockstep
