// `lockstep simulate`: the time of a training step by layout on devices that are not here, with its reasons. Computed, not measured.
#include <algorithm>
#include <cstdio>
#include <optional>

#include "cli/commands.h"
#include "cli/common_options.h"
#include "cli/device_rates.h"
#include "planning/memory_verdict.h"
#include "planning/step_simulation.h"

namespace lockstep {
namespace {
constexpr std::string_view kComputed = "computed, not measured";

nlohmann::ordered_json time_json(const StepTime& time) {
  nlohmann::ordered_json out = {{"forward", time.forward}, {"backward", time.backward}, {"optimizer", time.optimizer}, {"exchanges", time.exchange()}};
  out["could_be_hidden"] = time.hideable;
  out["step"] = time.total();
  return out;
}

nlohmann::ordered_json step_json(const SimulatedStep& step) {
  nlohmann::ordered_json out = {{"ranks", step.layout.text()}, {"fits", step.fits()}, {"needed_bytes", step.needed}};
  out["available_bytes"] = step.available > 0 ? nlohmann::ordered_json(step.available) : nlohmann::ordered_json(nullptr);
  if (!step.fits()) return out;
  out["seconds"] = {{"fast", time_json(step.fast)}, {"slow", time_json(step.slow)}};
  out["imbalance"] = step.slow.imbalance;
  out["busiest_rank"] = step.busiest.rank;
  nlohmann::ordered_json exchanges = nlohmann::ordered_json::array();
  for (std::size_t g = 0; g < kRankGroups; ++g)
    for (std::size_t c = 0; c < kCollectives; ++c)
      if (const CommunicatorCounters& own = step.busiest.exchanges.groups[g][c]; own.calls > 0)
        exchanges.push_back(
            {{"group", std::string(kRankGroupNames[g])}, {"operation", std::string(kCollectiveNames[c])}, {"calls", own.calls}, {"bytes", own.bytes}});
  out["exchanges"] = std::move(exchanges);
  out["arithmetic"] = {{"forward", step.busiest.work.forward}, {"backward", step.busiest.work.backward}, {"experts_of_forward", step.busiest.work.experts}};
  out["reasons"] = step.reasons;
  return out;
}

void print_steps(const std::vector<SimulatedStep>& steps) {
  int width = 18;
  for (const SimulatedStep& step : steps) width = std::max(width, static_cast<int>(step.layout.text().size()));
  std::printf("%-*s%12s%10s%10s%11s%10s%24s%24s\n", width, "layout", "GB a rank", "forward", "backward", "optimizer", "exchange", "step, s", "tokens/s");
  for (const SimulatedStep& step : steps) {
    const StepTime &fast = step.fast, &slow = step.slow;
    std::printf("%-*s%12.1f", width, step.layout.text().c_str(), static_cast<double>(step.needed) / 1e9);
    if (!step.fits()) {
      std::printf("  does not fit: %.1f GB may be filled\n", static_cast<double>(step.available) / 1e9);
      continue;
    }
    const auto range = [](double a, double b) { return fmt::format("{:.3g} to {:.3g}", a, b); };
    std::printf("%10.3g%10.3g%11.3g%10.3g%24s%24s\n", slow.forward, slow.backward, slow.optimizer, slow.exchange(), range(fast.total(), slow.total()).c_str(),
                range(static_cast<double>(step.tokens) / slow.total(), static_cast<double>(step.tokens) / fast.total()).c_str());
  }
}

void print_reasons(const SimulatedStep& step) {
  std::printf("\n%s\n", step.layout.text().c_str());
  for (const std::string& reason : step.reasons) std::printf("  %s\n", reason.c_str());
  for (std::size_t g = 0; g < kRankGroups; ++g)
    for (std::size_t c = 0; c < kCollectives; ++c)
      if (const CommunicatorCounters& own = step.busiest.exchanges.groups[g][c]; own.bytes > 0)
        std::printf("  %-7s%-15s%8lld exchanges %16lld bytes\n", std::string(kRankGroupNames[g]).c_str(), std::string(kCollectiveNames[c]).c_str(),
                    static_cast<long long>(own.calls), static_cast<long long>(own.bytes));
}
}  // namespace

int simulate_command(const Arguments& arguments) {
  RuntimeSettings settings;
  StepPlan plan;
  std::string ranks = "all", device_name = "h200";
  std::int64_t devices = 8, host_devices = 0, tokens = 0, length = 0, adapter_rank = 0;
  std::optional<double> network;
  bool json = false;
  OptionTable table("simulate",
                    "The time of a training step with AdamW, of all weights or an adapter, by layout, computed and not measured: work, the bytes of every "
                    "exchange as the trainer's own "
                    "counters would have them, memory; with the reasons. Needs no weights, of large models a name will do.",
                    {"lockstep simulate models/countdown-glm --device measured --ranks tp=2 --tokens 4096",
                     "lockstep simulate qwen3-8b --device b200 --tokens 32768 --micro-batch 1 --checkpoint-activations",
                     "lockstep simulate gpt-oss-20b --ranks tp=4,ep=2 --tokens 4096 --length 1024 --checkpoint-activations --json",
                     "lockstep simulate qwen3-8b --ranks dp=128,shard=weights --tokens 524288 --checkpoint-activations"});
  table.positional("MODEL", &settings.model, true, "Model folder, config.json, or the name of a large model, such as gpt-oss-120b (docs/training-shapes.md)");
  table.text("ranks", &ranks, "LAYOUT",
             fmt::format("tp=N,dp=N,ep=N,pp=N,cp=N,shard=state|weights, at most {} ranks; or all: every layout of --devices", kMostPlannedRanks));
  table.integer("devices", &devices, 1, kMostRanks, "N", "Devices that --ranks all lays out");
  table.refused("without --ranks all", [&ranks] { return ranks != "all"; });
  table.choice("device", &device_name, rated_devices(), "Whose rates: published ones, or what this machine does now");
  table.integer("host-devices", &host_devices, 0, kMostPlannedRanks, "N", "Devices of a host, filled in the order of ranks; 0: 8, with --device measured all");
  table.number("network-gigabits", &network, 0.001, 100000, "X", "Gigabits a second between hosts", "400 of the data sheets, 10 with --device measured");
  table.refused("without --host-devices", [&host_devices] { return host_devices == 0; });
  table.integer("tokens", &tokens, 0, 1 << 24, "N", "Tokens of a step; 0: 4 sequences");
  table.integer("length", &length, 0, 1 << 20, "N", "Tokens of a sequence; 0: 4096, or the model's context or --tokens if that is less");
  table.integer("micro-batch", &plan.trainer.micro_batch, 0, 1 << 16, "N", "Sequences per micro-batch, 0: all");
  table.flag("checkpoint-activations", &plan.trainer.checkpoint_activations,
             "Recompute activations in the backward pass: less memory, more time, the same bits");
  table.integer("adapter-rank", &adapter_rank, 0, 256, "N", "Train an adapter of this rank and no weight (0: all weights)");
  table.choice("profile", &settings.profile, {"cpu-f32", "cpu-bf16w", "cpu-int4-qat"}, "Numerics: the width of the weights that are computed with");
  add_json_option(table, &json);
  if (!table.parse(arguments)) return kExitOk;

  settings.model = planned_name(settings.model);
  const std::shared_ptr<const Model> model = planned_model(settings);
  const std::int64_t context = model->facts().max_positions;
  if (length > context) fail(ErrorCode::invalid_argument, "length is {}, allowed are 1 to {}, the model's context", length, context);
  if (length == 0) length = std::min(context, std::int64_t{4096});
  if (tokens == 0) tokens = 4 * length;
  length = std::min(length, tokens);
  constexpr std::int64_t kMostSequences = 1 << 16;
  if ((tokens + length - 1) / length > kMostSequences)
    fail(ErrorCode::invalid_argument, "tokens is {}, allowed are at most {} sequences of {}", tokens, kMostSequences, length);
  plan.sequences = simulated_sequences(tokens, length);
  if (adapter_rank > 0) plan.adapter = AdapterSettings{.rank = adapter_rank};
  const std::vector<RankLayout> layouts = ranks == "all" ? layouts_of(*model, static_cast<int>(devices), length) : std::vector{planned_layout(ranks)};
  DeviceRates device = rates_of_device(device_name);
  if (host_devices > 0) {
    const int ranks_of_a_host = static_cast<int>(host_devices), all = layouts.front().size();
    put_on_hosts(device, (all + ranks_of_a_host - 1) / ranks_of_a_host, ranks_of_a_host, network);
  }

  const std::vector<SimulatedStep> steps = simulate_layouts(model, profile_by_name(settings.profile), plan, layouts, device);
  if (!steps.front().fits()) refuse_layouts(steps.front(), steps.size(), settings.model, device);

  const std::int64_t parameters = steps.front().busiest.memory.parameters;
  if (json) {
    nlohmann::ordered_json out = {{"heading", std::string(kComputed)}, {"model", settings.model}, {"parameters", parameters}, {"profile", settings.profile}};
    out["tokens"] = tokens;
    out["sequences"] = plan.sequences.size();
    out["device"] = {{"name", device.name}, {"source", device.told()}, {"efficiencies", device.assumed}};
    out["layouts"] = nlohmann::ordered_json::array();
    for (const SimulatedStep& step : steps) out["layouts"].push_back(step_json(step));
    std::printf("%s\n", out.dump().c_str());
    return kExitOk;
  }
  std::printf("%s\n%s, %lld parameters, %s: %lld tokens a step in %zu sequences\nrates: %s\n%s\nparts of a step in seconds at the lower efficiencies:\n\n",
              std::string(kComputed).c_str(), settings.model.c_str(), static_cast<long long>(parameters), settings.profile.c_str(),
              static_cast<long long>(tokens), plan.sequences.size(), device.told().c_str(), device.assumed.c_str());
  print_steps(steps);
  print_reasons(steps.front());
  return kExitOk;
}

}  // namespace lockstep
