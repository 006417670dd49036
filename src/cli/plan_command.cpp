// `lockstep plan`: how much memory training or serving a model will take, whether it fits, and which options would make it fit; and with --flops the
// arithmetic of a token behind a long context.
#include <algorithm>
#include <cstdio>
#include <numeric>

#include "cli/commands.h"
#include "cli/common_options.h"
#include "http/server.h"
#include "planning/mechanisms.h"
#include "planning/memory_verdict.h"
#include "planning/token_flop.h"
#include "runs/local_mtp.h"

namespace lockstep {
namespace {
double megabytes(std::int64_t bytes) { return static_cast<double>(bytes) / 1e6; }

nlohmann::ordered_json verdict_json(const MemoryVerdict& verdict) {
  nlohmann::ordered_json remedies = nlohmann::ordered_json::array();
  for (const MemoryVerdict::Remedy& remedy : verdict.remedies) remedies.push_back({{"options", remedy.options}, {"needed_bytes", remedy.needed}});
  const nlohmann::ordered_json available = verdict.available < 0 ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(verdict.available);
  return {
      {"fits", verdict.fits()}, {"needed_bytes", verdict.needed}, {"available_bytes", available}, {"missing_bytes", verdict.missing()}, {"remedies", remedies}};
}

std::string verdict_text(const MemoryVerdict& verdict, const AvailableMemory& memory) {
  if (verdict.available < 0) return fmt::format("needed are {:.1f} MB; whether they are there is not known ({})\n", megabytes(verdict.needed), memory.what);
  const std::string figures = fmt::format("{:.1f} MB are needed with the program and the reading of the model, {:.1f} MB may be taken ({})",
                                          megabytes(verdict.needed), megabytes(verdict.available), memory.what);
  if (verdict.fits()) return fmt::format("fits: {}\n", figures);
  std::string text = fmt::format("does not fit: {}; {:.1f} MB are missing\n", figures, megabytes(verdict.missing()));
  for (const MemoryVerdict::Remedy& remedy : verdict.remedies) text += fmt::format("  fits with {}: {:.1f} MB\n", remedy.options, megabytes(remedy.needed));
  if (verdict.remedies.empty())
    text += fmt::format("  it fits where {:.1f} MB may be taken; no option found makes it small enough\n", megabytes(verdict.needed));
  return text;
}

// Of a layout of more ranks than a run may have, whose ranks have devices of their own: whether the one that takes most fits on such a device.
std::string large_verdict_text(const MemoryVerdict& verdict) {
  const std::string most = fmt::format("plans take up to {} ranks, a run at most {}", kMostPlannedRanks, kMostRanks);
  if (verdict.available < 0) return fmt::format("whether a rank fits is not known; --memory-megabytes says what a rank's device has ({})\n", most);
  const std::string figures =
      fmt::format("{:.1f} MB are needed, {:.1f} MB of a rank's device may be taken ({})", megabytes(verdict.needed), megabytes(verdict.available), most);
  return verdict.fits() ? fmt::format("fits: {}\n", figures) : fmt::format("does not fit: {}; {:.1f} MB are missing\n", figures, megabytes(verdict.missing()));
}

constexpr double kGiga = 1e9;

int tell_token_flop(const RuntimeSettings& settings, bool json) {
  const std::int64_t context = settings.context > 0 ? settings.context : planned_model(settings)->facts().max_positions;
  const std::vector<TokenFlop> forms = token_flop(planned_config(settings), profile_by_name(settings.profile), context);
  const TokenFlop& own = forms.back();
  if (json) {
    nlohmann::ordered_json rows = nlohmann::ordered_json::array();
    for (const TokenFlop& f : forms)
      rows.push_back({{"form", f.name},
                      {"indexers", f.indexers},
                      {"matrices", f.matrices},
                      {"attention", f.attention},
                      {"index_scores", f.index_scores},
                      {"total", f.total()},
                      {"of_configured", f.total() / own.total()}});
    std::printf("%s\n", nlohmann::ordered_json{{"context", context}, {"token_flop", rows}}.dump().c_str());
    return kExitOk;
  }
  std::printf("arithmetic of the last of %lld tokens, forward, in GFLOP (a multiply-add counts 2); computed from the shapes, not measured\n",
              static_cast<long long>(context));
  std::printf("%-28s%10s%12s%12s%14s%12s%16s\n", "form", "indexers", "matrices", "attention", "index scores", "in all", "of configured");
  for (const TokenFlop& f : forms)
    std::printf("%-28s%10lld%12.4g%12.4g%14.4g%12.4g%16.2f\n", f.name.c_str(), static_cast<long long>(f.indexers), f.matrices / kGiga, f.attention / kGiga,
                f.index_scores / kGiga, f.total() / kGiga, f.total() / own.total());
  return kExitOk;
}
}  // namespace

int plan_command(const Arguments& arguments) {
  std::string purpose = "train", optimizer_state = "memory";
  RuntimeSettings settings;
  TrainingPlan training;
  ServingPlan serving;
  std::int64_t sequences = 0, length = 0, memory_megabytes = 0;
  serving.engine.cache_bytes = 0;
  bool json = false, flops = false;
  OptionTable table(
      "plan",
      "Predicts how much memory training or serving takes, by category, and whether it fits: the same code runs and only counts. Needs no "
      "weights; of large models not even a folder: a name will do, such as gpt-oss-120b (docs/training-shapes.md). Exit code 3: it does not fit. With "
      "--flops it tells the arithmetic of a token behind a long context instead.",
      {"lockstep plan --model models/countdown-glm", "lockstep plan --model model/config.json --for serve --sequences 32 --length 4096",
       "lockstep plan --model models/countdown-glm --ranks tp=2,dp=2", "lockstep plan --model qwen3-8b --ranks dp=128,shard=weights --sequences 128",
       "lockstep plan --model deepseek-v3 --for serve --memory-megabytes 2000000", "lockstep plan --model glm-5p2 --flops --context 1048576"});
  table.choice("for", &purpose, {"train", "serve"}, "Full-parameter training with AdamW, or serving");
  table.integer("sequences", &sequences, 0, 1 << 16, "N", "Sequences per step, or served at once; 0: 4 per step, 8 at once");
  table.integer("length", &length, 0, 1 << 20, "N",
                "Tokens per sequence, at least 2; 0: 256 in training, 1024 in serving, or the model's context if that is less");
  table.integer("micro-batch", &training.trainer.micro_batch, 0, 1 << 16, "N", "train: sequences per micro-batch, 0: all");
  table.refused("with --for serve", [&purpose] { return purpose == "serve"; });
  table.flag("checkpoint-activations", &training.trainer.checkpoint_activations,
             "train: recompute activations in the backward pass: less memory, the same bits");
  table.refused("with --for serve", [&purpose] { return purpose == "serve"; });
  table.flag("train-indexer", &training.trainer.train_indexer, "train: the indexer learns by its own loss, as in `train sft` unless told otherwise");
  table.refused("with --for serve", [&purpose] { return purpose == "serve"; });
  table.refused("with --critic, which `train rl` has, where no indexer learns", [&training] { return training.critic != "none"; });
  table.refused("where the model has no indexer", [&settings] { return !mechanisms_of(settings).indexer; });
  table.choice("optimizer-state", &optimizer_state, {"memory", "file"}, "train: where moments and fp32 masters are; a file is not counted as memory");
  table.refused("with --for serve", [&purpose] { return purpose == "serve"; });
  table.choice("critic", &training.critic, {"none", "full", "adapter"}, "train: a critic of the same model beside it, as `train rl --critic`");
  table.refused("with --for serve", [&purpose] { return purpose == "serve"; });
  table.integer("critic-rank", &training.critic_rank, 1, 256, "R", "train: rank of an adapter that is the critic");
  table.refused("without --critic adapter", [&training] { return training.critic != "adapter"; });
  table.integer("rollouts", &training.rollouts, 0, 1 << 16, "N",
                "train: sequences of --length tokens that a sampler beside it has at a time, as in `train rl`: its own copy of the weights, keys and values; "
                "0: none");
  table.refused("with --for serve", [&purpose] { return purpose == "serve"; });
  table.refused("over several --ranks", [&settings] { return planned_layout(settings.ranks).size() > 1; });
  table.integer("mtp-depths", &training.mtp_depths, 0, MtpSettings::kMostDepths, "N",
                "train: the layer of multi-token prediction, its own or a new one, trained beside it so many tokens ahead, as `train sft --mtp-depths`; 0: it "
                "is not trained");
  table.refused("with --for serve", [&purpose] { return purpose == "serve"; });
  table.refused("with --teacher", [&training] { return !training.teacher.empty(); });
  table.text("teacher", &training.teacher, "MODEL",
             "train: another model beside it, named as --model is, from whose distribution over the whole vocabulary it learns, as `train distill` does");
  table.refused("with --for serve", [&purpose] { return purpose == "serve"; });
  table.refused("with --critic", [&training] { return training.critic != "none"; });
  table.choice("keep-forward", &training.keep_forward.mode, keep_forward_modes(),
               "train: what an engine keeps of the forwards of all sequences beside it, as `train rl --keep-forward`");
  table.refused("with --for serve", [&purpose] { return purpose == "serve"; });
  table.refused("with a layout of --ranks over which nothing is kept", [&settings, &training] {
    const BackendKind kind = settings.device == "cuda" ? BackendKind::cuda : BackendKind::cpu;
    return training.keep_forward.on() && !keeps_over(planned_layout(settings.ranks), training.keep_forward, kind);
  });
  table.integer("keep-forward-megabytes", &training.keep_forward.megabytes, 1, 1 << 24, "N", "train: the most memory of what is kept");
  table.refused("with --keep-forward off", [&training] { return !training.keep_forward.on(); });
  table.integer("batch-rows", &serving.engine.max_batch_rows, 1, 1 << 20, "N", "serve: rows of one forward");
  table.refused("without --for serve", [&purpose] { return purpose != "serve"; });
  table.integer("cache-bytes", &serving.engine.cache_bytes, 0, std::int64_t{1} << 50, "BYTES",
                "serve: most bytes of cached keys and values; 0: what the sequences take");
  table.refused("without --for serve", [&purpose] { return purpose != "serve"; });
  table.integer("memory-megabytes", &memory_megabytes, 0, 1 << 30, "N",
                fmt::format("Of the machine that the plan is for, which has all ranks (more than {}: of each one's device). 0: what is free here; for a "
                            "server {}% of it, as `serve` takes",
                            kMostRanks, kMemoryPercent));
  table.flag("flops", &flops,
             "The arithmetic of the last of --context tokens (0: the model's own limit): matrices, attention and the scores of indexers; with an indexer in "
             "every layer and with attention to all keys beside it");
  add_runtime_options(table, settings);
  add_ranks_option(table, &settings.ranks);
  table.refused("with --flops", [&flops] { return flops; },
                {"for", "sequences", "length", "micro-batch", "checkpoint-activations", "train-indexer", "optimizer-state", "critic", "rollouts", "mtp-depths",
                 "teacher", "keep-forward", "memory-megabytes", "threads", "device", "backend", "isa", "mla-norm-eps", "ranks"});
  add_json_option(table, &json);
  if (!table.parse(arguments)) return kExitOk;

  settings.model = planned_name(settings.model);
  if (!training.teacher.empty()) training.teacher = planned_name(training.teacher);
  if (flops) return tell_token_flop(settings, json);
  if (sequences > 0) training.sequences = serving.sequences = sequences;
  if (length == 1) throw UsageError("--length is 1, allowed are 0 (the default of --for) and 2 or more");
  const std::int64_t context = planned_context(settings);
  training.length = length > 0 ? length : std::min(training.length, context);
  serving.length = length > 0 ? length : std::min(serving.length, context);
  serving.engine.max_sequences = serving.sequences;
  if (optimizer_state == "file") training.trainer.optimizer_folder = ".";  // a plan only counts: nothing is written there
  const bool trains = purpose == "train";
  if (!trains) leave_training_ranks_out(settings.ranks);
  const std::vector<MemoryPlan> ranks = trains ? plan_training(settings, training) : plan_serving(settings, with_cache(serving));
  const auto most = std::max_element(ranks.begin(), ranks.end(), [](const MemoryPlan& a, const MemoryPlan& b) { return a.total < b.total; });
  const MemoryPlan& plan = *most;
  const RankLayout layout = planned_layout(settings.ranks);
  const bool large = layout.size() > kMostRanks;  // nobody runs it: a few ranks are planned
  std::vector<std::int64_t> totals;
  for (const MemoryPlan& rank : ranks) totals.push_back(rank.total);
  const std::int64_t sum = std::accumulate(totals.begin(), totals.end(), std::int64_t{0});
  const AvailableMemory memory = large                      ? AvailableMemory{memory_megabytes > 0 ? memory_megabytes << 20 : -1, "of a rank's device"}
                                 : settings.device != "cpu" ? AvailableMemory{-1, "nobody asks a GPU"}
                                 : trains                   ? memory_for_training(memory_megabytes)
                                                            : memory_for_serving(memory_megabytes);
  const std::int64_t kept_row = trains ? kept_row_bytes(settings, training.keep_forward) : 0;
  const HttpOptions http;
  const ServingMemoryOptions beside{.answer_bytes = http.max_held_bytes, .upload_bytes = http.max_bodies_bytes};
  const MemoryVerdict verdict = large    ? MemoryVerdict{.needed = plan.total, .available = memory.bytes, .remedies = {}}
                                : trains ? judge_training(settings, training, memory)
                                         : judge_serving(settings, serving, beside, memory);
  if (json) {
    nlohmann::ordered_json out = {{"for", purpose}, {"profile", settings.profile}, {"parameters", plan.parameters}};
    for (int c = 0; c < kMemoryCategories; ++c)
      out["bytes"][std::string(kMemoryCategoryNames[static_cast<std::size_t>(c)])] = plan.peak[static_cast<std::size_t>(c)];
    out["total_bytes"] = plan.total;
    out["rank_total_bytes"] = totals;
    if (kept_row > 0) out["kept_row_bytes"] = kept_row;
    if (large) out["planned_ranks"] = planned_ranks(layout);
    out["verdict"] = verdict_json(verdict);
    std::printf("%s\n", out.dump().c_str());
    return verdict.fits() ? kExitOk : kExitDoesNotFit;
  }
  const auto line = [](const std::string& name, std::int64_t bytes) { std::printf("%-15s%10.1f MB\n", name.c_str(), megabytes(bytes)); };
  std::string of_rank;
  if (large)
    of_rank = fmt::format("; rank {}, which takes most of the {} that are planned of {}", planned_ranks(layout)[static_cast<std::size_t>(most - ranks.begin())],
                          ranks.size(), layout.size());
  else if (ranks.size() > 1) of_rank = fmt::format("; the rank of {} that takes most", ranks.size());
  std::printf("%s of %lld parameters, profile %s, %lld sequences of %lld tokens%s\n", trains ? "training" : "serving", static_cast<long long>(plan.parameters),
              settings.profile.c_str(), static_cast<long long>(trains ? training.sequences : serving.sequences),
              static_cast<long long>(trains ? training.length : serving.length), of_rank.c_str());
  for (int c = 0; c < kMemoryCategories; ++c) line(std::string(kMemoryCategoryNames[static_cast<std::size_t>(c)]), plan.peak[static_cast<std::size_t>(c)]);
  line("at one time", plan.total);
  if (ranks.size() > 1 && !large) line("all ranks", sum);
  if (kept_row > 0) std::printf("%-15s%10.1f KB\n", "a kept token", static_cast<double>(kept_row) / 1e3);
  std::fputs((large ? large_verdict_text(verdict) : verdict_text(verdict, memory)).c_str(), stdout);
  return verdict.fits() ? kExitOk : kExitDoesNotFit;
}

}  // namespace lockstep
