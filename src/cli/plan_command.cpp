// `lockstep plan`: how much memory training or serving a model takes, before it is tried.
#include <sys/sysinfo.h>

#include <algorithm>
#include <cstdio>
#include <numeric>

#include "cli/commands.h"
#include "cli/common_options.h"
#include "service/memory_plan.h"

namespace lockstep {

int plan_command(const Arguments& arguments) {
  std::string purpose = "train", optimizer_state = "memory";
  RuntimeSettings settings;
  TrainingPlan training;
  ServingPlan serving;
  std::int64_t sequences = 0, length = 0;
  bool json = false;
  OptionTable table("plan", "How much memory training or serving takes, by what it is for: the same code runs, and only counts. Needs no weights.",
                    {"lockstep plan --model models/countdown-glm", "lockstep plan --model model/config.json --for serve --sequences 32 --length 4096",
                     "lockstep plan --model models/countdown-glm --ranks tp=2,dp=2"});
  table.choice("for", &purpose, {"train", "serve"}, "Full-parameter training with AdamW, or serving");
  table.integer("sequences", &sequences, 0, 1 << 16, "N", "Sequences of a step, or running at a time; 0: 4 of a step, 8 at a time");
  table.integer("length", &length, 0, 1 << 20, "N", "Tokens of each, at least 2; 0: 256 in training, 1024 in serving");
  table.integer("micro-batch", &training.trainer.micro_batch, 0, 1 << 16, "N", "train: sequences a micro-batch, 0: all");
  table.refused("with --for serve", [&purpose] { return purpose == "serve"; });
  table.flag("checkpoint-activations", &training.trainer.checkpoint_activations, "train: drop activations and make them again in backward");
  table.refused("with --for serve", [&purpose] { return purpose == "serve"; });
  table.choice("optimizer-state", &optimizer_state, {"memory", "file"}, "train: where moments and fp32 masters lie; a file counts in no sum");
  table.refused("with --for serve", [&purpose] { return purpose == "serve"; });
  table.integer("batch-rows", &serving.engine.max_batch_rows, 1, 1 << 20, "N", "serve: rows of one forward");
  table.refused("without --for serve", [&purpose] { return purpose != "serve"; });
  table.integer("cache-bytes", &serving.engine.cache_bytes, 1, std::int64_t{1} << 50, "BYTES", "serve: of keys and values at most");
  table.refused("without --for serve", [&purpose] { return purpose != "serve"; });
  add_runtime_options(table, settings);
  add_ranks_option(table, &settings.ranks);
  add_json_option(table, &json);
  if (!table.parse(arguments)) return kExitOk;

  if (sequences > 0) training.sequences = serving.sequences = sequences;
  if (length == 1) throw UsageError("--length is 1, allowed are 0 (the default of --for) and 2 or more");
  if (length > 0) training.length = serving.length = length;
  serving.engine.max_sequences = serving.sequences;
  if (optimizer_state == "file") training.trainer.optimizer_folder = ".";  // a plan only counts: nothing is written there
  const bool trains = purpose == "train";
  const std::vector<MemoryPlan> ranks = trains ? plan_training(settings, training) : plan_serving(settings, serving);
  const MemoryPlan& plan = *std::max_element(ranks.begin(), ranks.end(), [](const MemoryPlan& a, const MemoryPlan& b) { return a.total < b.total; });
  std::vector<std::int64_t> totals;
  for (const MemoryPlan& rank : ranks) totals.push_back(rank.total);
  const std::int64_t sum = std::accumulate(totals.begin(), totals.end(), std::int64_t{0});
  struct sysinfo machine {};
  const std::uint64_t there = sysinfo(&machine) == 0 ? static_cast<std::uint64_t>(machine.totalram) * machine.mem_unit : 0;
  if (json) {
    nlohmann::ordered_json out = {{"for", purpose}, {"profile", settings.profile}, {"parameters", plan.parameters}};
    for (int c = 0; c < kMemoryCategories; ++c) out["bytes"][std::string(kMemoryCategoryNames[static_cast<std::size_t>(c)])] = plan.peak[static_cast<std::size_t>(c)];
    out["total_bytes"] = plan.total;
    out["rank_total_bytes"] = totals;
    out["machine_bytes"] = there;
    std::printf("%s\n", out.dump().c_str());
    return kExitOk;
  }
  const auto line = [](const std::string& name, std::int64_t bytes) { std::printf("%-15s%10.1f MB\n", name.c_str(), static_cast<double>(bytes) / 1e6); };
  std::printf("%s of %lld parameters, profile %s, %lld sequences of %lld tokens%s\n", trains ? "training" : "serving", static_cast<long long>(plan.parameters),
              settings.profile.c_str(), static_cast<long long>(trains ? training.sequences : serving.sequences),
              static_cast<long long>(trains ? training.length : serving.length),
              ranks.size() > 1 ? fmt::format("; the rank of {} that takes most", ranks.size()).c_str() : "");
  for (int c = 0; c < kMemoryCategories; ++c) line(std::string(kMemoryCategoryNames[static_cast<std::size_t>(c)]), plan.peak[static_cast<std::size_t>(c)]);
  line("at one time", plan.total);
  if (ranks.size() > 1) line("all ranks", sum);
  if (there > 0) line("this machine", static_cast<std::int64_t>(there));
  return kExitOk;
}

}  // namespace lockstep
