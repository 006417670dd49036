// `lockstep train sft`: supervised fine-tuning from a JSONL file or from an environment's reference completions.
#include <cstdio>

#include "api/openai/chat_messages.h"
#include "cli/common_options.h"
#include "cli/rl_options.h"
#include "cli/toml.h"
#include "cli/train_command.h"
#include "cli/trained_options.h"
#include "jobs/sft_job.h"
#include "planning/mechanisms.h"
#include "trained/led_model.h"

namespace lockstep {
namespace {

struct SftSettings {
  SftJob job;
  RunCommand command{job.config.run};
  std::int64_t transcript_megabytes = RunSettings().transcript_bytes >> 20;
  ProcessSettings processes;
};

bool parse(const Arguments& arguments, SftSettings& s) {
  SftJob& job = s.job;
  SftConfig& c = job.config;
  RunSettings& run = c.run;
  std::optional<std::int64_t> epochs, steps, batch;
  OptionTable table("train sft", "Fine-tunes a model on texts; in a sparse-attention model the indexer is trained too.",
                    {"lockstep train sft --config recipes/countdown_sft.toml", "lockstep train sft --model DIR --data my.jsonl --name my-run",
                     "lockstep train sft --model DIR --data my.jsonl --name my-adapter --adapter-rank 16"});
  add_runtime_options(table, c.runtime);
  add_ranks_option(table, &c.runtime.ranks);
  add_transport_options(table, s.processes);
  table.text("name", &run.name, "NAME", "Name of the run: runs/NAME holds config, metrics.jsonl, checkpoints and the export");
  table.kept_folder("runs", &run.runs, "Folder of runs");
  table.input("data", &job.data, "FILE",
              "JSONL (docs/own-data.md): {\"messages\"} in the model's chat template, {\"prompt\",\"completion\"}, {\"text\"}, or {\"tokens\",\"weights\"}; "
              "`lockstep render --train FILE` shows which tokens are trained");
  add_reading_options(table, job.end_token, job.chat_template);
  table.text("environment", &job.environment, "NAME", "Instead of --data: the reference rollouts of an environment, such as countdown");
  add_window_option(table, &job.compact_at, &job.environment);
  table.number("chat-share", &job.chat_share, 0, 1, "X",
               "Teach this share of its problems in the model's chat template, as conversations with tool calls: every 1/X-th, rounded");
  table.number("hold-rate", &c.hold_rate, 0, 1, "X",
               "Measure and do not train the kinds of problems whose references the model already writes with probability X (docs/rl.md); 0: train all");
  table.refused("without --environment", [&job] { return job.environment.empty(); }, {"chat-share", "hold-rate"});
  table.flag("from-scratch", &c.from_scratch, "Random initial weights; --model then needs config.json and a tokenizer only");
  table.seed("init-seed", &c.init_seed, "Seed of initial weights, the model's or an adapter's");
  table.refused("without --from-scratch, --adapter-rank or --mtp-depths", [&c] { return !c.from_scratch && c.trained.rank == 0 && c.mtp.depths == 0; });
  table.number("init-deviation", &c.init_deviation, 0, 10, "X", "Standard deviation of the initial matrices");
  table.refused("without --from-scratch or --mtp-depths", [&c] { return !c.from_scratch && c.mtp.depths == 0; });
  table.seed("seed", &c.seed, "Seed of the data order");
  table.integer("epochs", &epochs, 1, 1 << 20, "N", "Passes over the data", "3; with --steps: as many as those take");
  table.integer("steps", &steps, 1, std::int64_t{1} << 40, "N", "Optimizer steps, instead of --epochs", "as --epochs says");
  table.integer("batch", &batch, 1, 1 << 20, "N", "Sequences per step", "32; with little data an eighth of it");
  table.input("eval", &job.eval, "FILE", "Evaluate the loss on these lines (as --data); they are not trained");
  table.number("eval-share", &job.eval_share, 0, 0.9, "X", "Hold out this share of --data for evaluation, chosen by the seed",
               "0.1 from 20 sequences on, with --eval 0");
  table.integer("eval-every", &c.eval_every, 0, std::int64_t{1} << 40, "N", "Steps between evaluations; 0: an epoch");
  table.integer("patience", &c.patience, 0, 1 << 20, "N", "Stop after so many evaluations without a better loss than the best; 0: never");
  table.choice("share-prompts", &c.share_prompts, {"auto", "off", "backward"},
               "Keep sequences of one prompt together, which is one sequence in the backward too (other bits, recorded in checkpoints); auto: where it saves a "
               "quarter of the rows");
  table.integer("share-prompts-from", &c.share_prompts_from, 2, 1 << 20, "N", "Tokens of a prompt from which on --share-prompts auto counts its rows as saved");
  table.refused("without --share-prompts auto", [&c] { return c.share_prompts != "auto"; });
  add_memory_options(table, c.micro_batch, c.checkpoint_activations, c.optimizer_state);
  table.number("learning-rate", &c.asked.learning_rate, 0, 10, "X", "Peak learning rate",
               "2e-5 for all weights of a model of 135 million, more for smaller ones; an adapter: ten times that, at least 1e-4; --from-scratch: 1e-3; "
               "--optimizer dimuon: what gives its AdamW the first of these");
  add_schedule_options(table, c.asked);
  add_adamw_options(table, c, 10);
  add_trained_options(table, c.trained);
  table.number("router-bias-rate", &c.router_bias_rate, 0, 1, "X", "Step of the router's correction bias towards even load");
  table.flag("train-indexer", &c.train_indexer, "Train the indexer by its own KL loss");
  table.integer("index-from", &c.index_from, 0, std::int64_t{1} << 40, "STEP", "The step from which the indexer is trained");
  table.refused("with --no-train-indexer", [&c] { return !c.train_indexer; });
  table.integer("sparse-from", &c.sparse_from, 0, std::int64_t{1} << 40, "STEP", "The step from which attention is sparse; dense before");
  table.refused("with --adapter-rank, whose base is frozen", [&c] { return c.trained.rank > 0; },
                {"router-bias-rate", "train-indexer", "index-from", "sparse-from"});
  table.refused("where the model has no router with a correction bias", [&c] { return !mechanisms_of(c.runtime).router_bias; }, {"router-bias-rate"});
  table.refused("where the model has no indexer", [&c] { return !mechanisms_of(c.runtime).indexer; }, {"train-indexer", "index-from", "sparse-from"});
  add_mtp_options(table, c.mtp);
  table.flag("mtp-joint", &c.mtp.joint, "Let that layer's losses move the model too, through hidden states, embedding and head; else the model is read alone");
  table.refused("without --mtp-depths", [&c] { return c.mtp.depths == 0; });
  add_checkpoint_options(table, run);
  add_transcript_options(table, c.transcripts, c.transcripts_every, s.transcript_megabytes,
                         "Sequences per step written to transcripts.jsonl, with log-probabilities and mask");
  add_export_dtype(table, c.export_dtype, c.trained, c.runtime.profile, "model");
  table.output_folder("export-to", &c.export_to, "Where the model is exported, empty: runs/NAME/export");
  s.command.add_options(table, ", to the same bits as if it had never stopped");
  if (!table.parse(arguments)) return false;
  if (job.data.empty() == job.environment.empty()) throw UsageError("exactly one of --data and --environment is needed");
  c.overwrite = table.overwrite();
  job.reading = {chat_messages, chat_tools};
  run.transcript_bytes = s.transcript_megabytes << 20;
  if (epochs && steps) throw UsageError(fmt::format("--epochs is {} and --steps is {}, allowed is one of them", *epochs, *steps));
  if (!job.environment.empty() && !steps) throw UsageError("--environment needs --steps: its problems have no end");
  if (!job.environment.empty() && (epochs || job.eval_share))
    throw UsageError("--epochs and --eval-share are of --data; an environment's problems have no end");
  if (!job.eval.empty() && job.eval_share.value_or(0) > 0) throw UsageError("at most one of --eval and --eval-share is allowed");
  c.asked.epochs = epochs.value_or(0);
  c.asked.steps = steps.value_or(0);
  c.asked.batch = batch.value_or(0);
  c.asked.adapter = c.trained.rank > 0;
  c.asked.optimizer = c.trained.optimizer;
  c.asked.from_scratch = c.from_scratch;
  s.command.describe(table, "sft", arguments);
  return true;
}

}  // namespace

int train_sft(const Arguments& arguments) {
  SftSettings s;
  if (!parse(arguments, s)) return kExitOk;
  if (follow_processes(s.processes, s.job.config.runtime.isa)) return kExitOk;
  RunSettings& run = s.job.config.run;
  s.command.measure(s.job.config.runtime);
  const SftSummary summary = run_sft_job(s.job);
  if (summary.interrupted) return s.command.stopped(fmt::format("interrupted at step {}; saved", summary.steps));
  const std::string report = s.command.finished(std::filesystem::path(run.runs) / run.name);
  if (s.command.json()) {
    const auto of_steps = [&](double value) { return summary.was_finished ? nlohmann::ordered_json() : nlohmann::ordered_json(value); };
    nlohmann::ordered_json json = {{"steps", summary.steps},         {"tokens", summary.tokens},
                                   {"loss", of_steps(summary.loss)}, {"index_loss", of_steps(summary.index_loss)},
                                   {"seconds", summary.seconds},     {"weights_sha256", summary.weights_sha256},
                                   {"export", summary.exported},     {"report", report}};
    if (!summary.draft_sha256.empty()) json["draft_sha256"] = summary.draft_sha256;
    if (summary.eval_before) json["eval_loss_before"] = *summary.eval_before;
    if (summary.eval_loss) json["eval_loss"] = *summary.eval_loss;
    if (summary.stopped_early) json["stopped_early"] = true, json["best_step"] = summary.best_step;
    std::printf("%s\n", json.dump().c_str());
  } else {
    if (!summary.was_finished)
      std::printf("%lld steps, %lld tokens in %.0f s, loss %.4f\n", static_cast<long long>(summary.steps), static_cast<long long>(summary.tokens),
                  summary.seconds, summary.loss);
    std::printf("weights sha256 %s\n", summary.weights_sha256.c_str());
    if (!summary.draft_sha256.empty()) std::printf("draft sha256 %s\n", summary.draft_sha256.c_str());
    std::printf("exported to %s\n", summary.exported.c_str());
    if (summary.eval_before && summary.eval_loss)
      std::printf("loss of the held-out sequences: %.4f before, %.4f now\n", *summary.eval_before, *summary.eval_loss);
    RuntimeSettings served = s.job.config.runtime;
    if (s.job.config.trained.rank > 0 && !summary.draft_sha256.empty()) served.model = summary.exported + "/base";  // with the layer
    print_serve_line(served, s.job.config.trained, run.name, summary.exported);
  }
  return kExitOk;
}

}  // namespace lockstep
