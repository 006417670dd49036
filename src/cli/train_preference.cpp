// `lockstep train preference`, and one command for each loss (`train dpo`, `train kto`, ...): training on which of two answers is better.
#include <cstdio>

#include "api/openai/chat_messages.h"
#include "cli/common_options.h"
#include "cli/train_command.h"
#include "cli/trained_options.h"
#include "jobs/preference_job.h"
#include "trained/led_model.h"

namespace lockstep {
namespace {

// The names of the losses that take an option.
std::string losses_with(PreferenceOption option) {
  std::vector<std::string> names;
  for (const PreferenceRow& row : preference_rows())
    if (row.options & option) names.emplace_back(row.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

void add_loss_options(OptionTable& table, PreferenceSettings& s, const std::string& fixed_loss) {
  if (fixed_loss.empty()) table.choice("loss", &s.loss, preference_names(), "The loss (docs/preferences.md)");
  else s.loss = fixed_loss;
  const auto without = [&s](PreferenceOption option) { return [&s, option] { return (preference_row(s.loss).options & option) == 0; }; };
  table.number("beta", &s.beta, 1e-6, 1e6, "X", "How strongly rewards differ: of log-ratios, or of log-probabilities; unless given, simpo has 2");
  table.refused("with a --loss without it", without(kBeta));
  table.number("label-smoothing", &s.label_smoothing, 0, 0.499, "X",
               fmt::format("Share of pairs whose answers are taken to be swapped ({})", losses_with(kLabelSmoothing)));
  table.refused("with a --loss without it", without(kLabelSmoothing));
  table.number("gamma", &s.gamma, 0, 1e6, "X", fmt::format("The margin of rewards that is aimed at ({})", losses_with(kGamma)));
  table.refused("with a --loss without it", without(kGamma));
  table.number("alpha", &s.alpha, 0, 1e6, "X", fmt::format("Weight of the chosen answer's own likelihood ({})", losses_with(kAlpha)));
  table.refused("with a --loss without it", without(kAlpha));
  table.number("desirable-weight", &s.desirable_weight, 0, 1e6, "X", fmt::format("Weight of answers with label true ({})", losses_with(kLabelWeights)));
  table.number("undesirable-weight", &s.undesirable_weight, 0, 1e6, "X", fmt::format("Weight of answers with label false ({})", losses_with(kLabelWeights)));
  table.refused("with a --loss without it", without(kLabelWeights), {"desirable-weight", "undesirable-weight"});
  table.after_reading([&table, &s] {
    if (!table.given("beta")) s.beta = preference_row(s.loss).beta;
  });
}

nlohmann::ordered_json json_of(const PreferenceFigures& f) { return {{"loss", f.loss}, {"accuracy", f.accuracy}, {"margin", f.margin()}}; }

}  // namespace

int train_preference(const Arguments& arguments, const std::string& fixed_loss) {
  PreferenceJob job;
  PreferenceConfig& c = job.config;
  RunSettings& run = c.run;
  if (!fixed_loss.empty()) run.name = fixed_loss;
  RunCommand command(run);
  std::optional<std::int64_t> epochs, steps, batch;
  std::string share_prompts = to_string(c.share_prompts);
  ProcessSettings processes;
  const std::string kind = fixed_loss.empty() ? "preference" : fixed_loss, example = "lockstep train " + kind;
  OptionTable table(
      "train " + kind,
      "Learns from preferences: pairs of a chosen and a rejected answer, or (kto) answers with a label. What training starts from is the reference. "
      "Writes runs/NAME: config.json, reference.json, metrics.jsonl, checkpoints, export.",
      {fmt::format("{} --model DIR --data pairs.jsonl --name {}-run", example, kind),
       fmt::format("{} --model DIR --data pairs.jsonl --name {}-adapter --adapter-rank 16", example, kind)});
  add_runtime_options(table, c.runtime);
  add_ranks_option(table, &c.runtime.ranks);
  add_transport_options(table, processes);
  table.text("name", &run.name, "NAME", "Name of the run, and of its folder");
  table.kept_folder("runs", &run.runs, "Folder of runs");
  table.input("data", &job.data, "FILE",
              "JSONL (docs/preferences.md): {\"prompt\" or \"messages\", \"chosen\", \"rejected\"}; for kto also {\"prompt\", \"completion\", \"label\"}");
  add_loss_options(table, c.preference, fixed_loss);
  add_reading_options(table, job.end_token, job.chat_template);
  table.seed("seed", &c.seed, "Seed of the data order");
  table.integer("epochs", &epochs, 1, 1 << 20, "N", "Passes over the data", "1; with --steps: as many as those take");
  table.integer("steps", &steps, 1, std::int64_t{1} << 40, "N", "Optimizer steps, instead of --epochs", "as --epochs says");
  table.integer("batch", &batch, 1, 1 << 20, "N", "Pairs or answers per step", "32; with little data an eighth of it");
  table.input("eval", &job.eval, "FILE", "Evaluate on these lines (as --data); they are not trained");
  table.number("eval-share", &job.eval_share, 0, 0.9, "X", "Hold out this share of --data for evaluation, chosen by the seed",
               "0.1 from 20 lines on, with --eval 0");
  table.integer("eval-every", &c.eval_every, 0, std::int64_t{1} << 40, "N", "Steps between evaluations; 0: an epoch");
  table.choice(
      "share-prompts", &share_prompts, {"off", "forward", "backward"},
      "What the answers to one prompt share in training: the prompt's forward (no bit changes), or its backward too (other bits, recorded in checkpoints)");
  add_memory_options(table, c.micro_batch, c.checkpoint_activations, c.optimizer_state, "a pair is two; ");
  table.number("learning-rate", &c.asked.learning_rate, 0, 10, "X", "Peak learning rate", "a tenth of train sft's");
  add_schedule_options(table, c.asked);
  add_adamw_options(table, c, 10);
  add_trained_options(table, c.trained);
  add_adapter_seed(table, c.init_seed, c.trained);
  add_checkpoint_options(table, run);
  add_export_dtype(table, c.export_dtype, c.trained, c.runtime.profile, "model", [&c] { return preference_row(c.preference.loss).values; });
  table.output_folder("export-to", &c.export_to, "Where the model is exported, empty: runs/NAME/export");
  command.add_options(table, " to the same bits");
  if (!table.parse(arguments)) return kExitOk;
  if (job.data.empty()) throw UsageError("--data is needed: a file of pairs");
  if (epochs && steps) throw UsageError(fmt::format("--epochs is {} and --steps is {}, allowed is one of them", *epochs, *steps));
  if (!job.eval.empty() && job.eval_share.value_or(0) > 0) throw UsageError("at most one of --eval and --eval-share is allowed");
  if (follow_processes(processes, c.runtime.isa)) return kExitOk;
  c.overwrite = table.overwrite();
  c.share_prompts = share_prompts_by_name(share_prompts);
  job.reading = {chat_messages, chat_tools};
  c.asked.epochs = epochs.value_or(0);
  c.asked.steps = steps.value_or(0);
  c.asked.batch = batch.value_or(0);
  c.asked.adapter = c.trained.rank > 0;
  c.asked.optimizer = c.trained.optimizer;
  command.describe(table, kind, arguments);
  run.resolved["loss"] = c.preference.loss;
  run.quiet = run.quiet || command.json();
  command.measure(c.runtime);
  const PreferenceSummary summary = run_preference_job(job);
  if (summary.interrupted) return command.stopped(fmt::format("interrupted at step {}; saved", summary.steps));
  const std::string report = command.finished(std::filesystem::path(run.runs) / run.name);
  if (command.json()) {
    nlohmann::ordered_json out{{"steps", summary.steps},
                               {"tokens", summary.tokens},
                               {"last", summary.was_finished ? nlohmann::ordered_json() : json_of(summary.last)},
                               {"seconds", summary.seconds},
                               {"reference_seconds", summary.reference_seconds},
                               {"weights_sha256", summary.weights_sha256},
                               {"export", summary.exported},
                               {"report", report}};
    if (summary.eval_before) out["eval_before"] = json_of(*summary.eval_before);
    if (summary.eval_now) out["eval"] = json_of(*summary.eval_now);
    std::printf("%s\n", out.dump().c_str());
    return kExitOk;
  }
  if (!summary.was_finished)
    std::printf("%lld steps, %lld tokens (%lld rows computed) in %.0f s, loss %.4f\n", static_cast<long long>(summary.steps),
                static_cast<long long>(summary.tokens), static_cast<long long>(summary.rows), summary.seconds, summary.last.loss);
  std::printf("weights sha256 %s\nexported to %s\n", summary.weights_sha256.c_str(), summary.exported.c_str());
  if (summary.eval_before && summary.eval_now)
    std::printf("held out: accuracy %.3f before, %.3f now; margin %.4g before, %.4g now\n", summary.eval_before->accuracy, summary.eval_now->accuracy,
                summary.eval_before->margin(), summary.eval_now->margin());
  if (preference_row(c.preference.loss).values)
    std::printf(
        "it is a model with a value head: transformers' AutoModelForSequenceClassification reads it, lockstep train rl --critic-model begins from it\n");
  else print_serve_line(c.runtime, c.trained, run.name, summary.exported);
  return kExitOk;
}

}  // namespace lockstep
