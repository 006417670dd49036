#include "cli/launched_run.h"

#include <algorithm>

#include "base/error.h"
#include "cli/device_rates.h"
#include "cli/options.h"
#include "cli/train_command.h"

namespace lockstep {
namespace {
constexpr std::int64_t kUsualBatch = 32;  // of train sft and of preferences, where nothing is said

std::int64_t integer_of(const OptionRows& rows, const char* name, std::int64_t otherwise) {
  const std::string text = rows.value(name);
  return text.empty() ? otherwise : std::stoll(text);
}

LaunchedRun run_of_table(const std::string& kind, const OptionTable& table) {
  const OptionRows& rows = table.rows();
  if (rows.value("transport") != "mpi")
    throw UsageError(fmt::format("--transport is {} behind --, where launch starts processes; allowed is mpi, or to leave it out", rows.value("transport")));
  LaunchedRun run{.kind = kind};
  const std::string fork = rows.value("fork");
  run.folder = std::filesystem::path(rows.value("runs")) / (fork.empty() ? rows.value("name") : fork);
  run.runtime.model = rows.value("model");
  run.runtime.profile = rows.value("profile");
  run.runtime.mla_norm_eps = std::stod(rows.value("mla-norm-eps"));
  if (table.given("ranks")) run.runtime.ranks = rows.value("ranks");
  run.sequences = kind == "train rl"        ? integer_of(rows, "problems", 1) * integer_of(rows, "rollouts", 1)
                  : kind == "train distill" ? integer_of(rows, "prompts", 1) * integer_of(rows, "rollouts", 1)
                  : kind == "train sft"     ? integer_of(rows, "batch", kUsualBatch)
                                            : 2 * integer_of(rows, "batch", kUsualBatch);  // pairs of answers
  run.micro_batch = integer_of(rows, "micro-batch", 0);
  run.checkpoint_activations = rows.value("checkpoint-activations") == "true";
  run.resume = rows.value("resume") == "true";
  run.saves = integer_of(rows, "checkpoint-every", 0) > 0;
  return run;
}
}  // namespace

std::optional<LaunchedRun> read_launched_run(const Arguments& words) {
  const std::string kind = words.empty() ? std::string() : words[0] + (words.size() > 1 ? " " + words[1] : "");
  if (words.empty() || words[0] != "train" || words.size() < 2)
    throw UsageError(fmt::format("behind -- stands '{}', allowed is train KIND with its options, which goes on from a checkpoint", kind.substr(0, 60)));
  std::optional<LaunchedRun> run;
  const TableReading reading([&](const OptionTable& table) { run = run_of_table(kind, table); });
  Arguments rest(words.begin() + 1, words.end());
  rest.insert(rest.begin() + 1, {"--transport", "mpi"});  // as it is started; one of the user's own stands behind and is seen
  train_command(rest);
  return run;
}

LayoutChoice::LayoutChoice(const LaunchedRun& run, LayoutWish wish) : run_(run), wish_(std::move(wish)) {
  const std::string& ranks = run.runtime.ranks.empty() ? wish_.ranks : run.runtime.ranks;
  if (ranks != "auto") held_ = rank_layout(ranks);
}

LaunchLayout LayoutChoice::operator()(const std::vector<Host>& hosts) {
  if (held_) return {.ranks = *held_, .processes = std::min(held_->size(), slots_of(hosts))};
  const std::string key = hosts_text(hosts);
  if (!known_.contains(key)) known_[key] = simulated(hosts);
  return known_[key];
}

DeviceRates LayoutChoice::rates_over(const std::vector<Host>& hosts) {
  if (!device_) device_ = rates_of_device(wish_.device);
  DeviceRates rates = *device_;
  if (hosts.size() < 2) return rates;
  const int least = std::min_element(hosts.begin(), hosts.end(), [](const Host& a, const Host& b) { return a.slots < b.slots; })->slots;
  put_on_hosts(rates, static_cast<int>(hosts.size()), least, wish_.network);
  if (!rates.shared) return rates;
  // Each host as this one. What its ranks share is divided by all ranks later.
  const double all = static_cast<double>(hosts.size());
  for (double* rate : {&rates.arithmetic, &rates.memory, &rates.link}) *rate *= all;
  rates.memory_bytes *= static_cast<std::int64_t>(hosts.size());
  return rates;
}

LaunchLayout LayoutChoice::simulated(const std::vector<Host>& hosts) {
  if (!model_) model_ = planned_model(run_.runtime);
  const DeviceRates rates = rates_over(hosts);
  const std::vector<std::string> planned{"cpu-f32", "cpu-bf16w", "cpu-int4-qat"};  // of `simulate`; other widths are taken for bf16
  const bool known = std::find(planned.begin(), planned.end(), run_.runtime.profile) != planned.end();
  const std::int64_t length = std::min(wish_.length > 0 ? wish_.length : std::int64_t{4096}, model_->facts().max_positions);
  StepPlan plan;
  plan.sequences = simulated_sequences(run_.sequences * length, length);
  plan.trainer.micro_batch = run_.micro_batch;
  plan.trainer.checkpoint_activations = run_.checkpoint_activations;
  const std::vector<RankLayout> layouts = layouts_of(*model_, slots_of(hosts), length);
  const std::vector<SimulatedStep> steps = simulate_fitting(model_, profile_by_name(known ? run_.runtime.profile : "cpu-bf16w"), plan, layouts, rates);
  if (!steps.front().fits()) refuse_layouts(steps.front(), steps.size(), run_.runtime.model, rates);
  return {.ranks = steps.front().layout,
          .processes = slots_of(hosts),
          .why = fmt::format("the shortest step of {} layout{}, {:.3g} to {:.3g} s computed for {} sequences of {} tokens by {}", layouts.size(),
                             layouts.size() == 1 ? "" : "s", steps.front().fast.total(), steps.front().slow.total(), run_.sequences, length,
                             rates.shared ? "this machine's rates" : "the rates of " + rates.name)};
}

}  // namespace lockstep
