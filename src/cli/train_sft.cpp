// `lockstep train sft`: supervised fine-tuning from a JSONL file or from an environment's reference completions.
#include <cstdio>

#include "base/log.h"
#include "base/signals.h"
#include "cli/common_options.h"
#include "cli/live_page.h"
#include "cli/toml.h"
#include "cli/train_command.h"
#include "rl/environment.h"
#include "service/sft_run.h"
#include "service/training_state.h"

namespace lockstep {
namespace {

// The reference completions of an environment's training problems; problem i of the run is a function of (seed, i).
class EnvironmentSource final : public SftSource {
 public:
  EnvironmentSource(const std::string& name, ChatData data, std::uint64_t seed) : environment_(make_environment(name)), data_(std::move(data)), seed_(seed) {}
  std::vector<TrainSequence> batch(std::int64_t step, std::int64_t count) const override {
    std::vector<TrainSequence> sequences;
    for (std::int64_t i = step * count; i < (step + 1) * count; ++i) {
      const Problem problem = environment_->problem(Split::train, seed_, static_cast<std::uint64_t>(i));
      sequences.push_back(train_sequence(data_.completion(problem.prompt, environment_->reference_completion(problem))));
    }
    return sequences;
  }

 private:
  std::unique_ptr<Environment> environment_;
  ChatData data_;
  std::uint64_t seed_;
};

struct SftSettings {
  SftConfig config;
  std::string data, environment, end_token, chat_template;
  std::string eval, fork;
  std::optional<double> eval_share;
  std::int64_t keep_last = 2, transcript_megabytes = SftConfig().transcript_bytes >> 20;
  bool resume = false, json = false;
  LivePage page;
};

bool parse(const Arguments& arguments, SftSettings& s) {
  SftConfig& c = s.config;
  std::optional<std::int64_t> epochs, steps, batch;
  OptionTable table("train sft", "Fine-tunes a model on texts; in a sparse-attention model the indexer learns beside it.",
                    {"lockstep train sft --config recipes/countdown_sft.toml",
                     "lockstep train sft --model DIR --data my.jsonl --name my-run",
                     "lockstep train sft --model DIR --data my.jsonl --name my-adapter --adapter-rank 16"});
  add_runtime_options(table, c.runtime);
  add_ranks_option(table, &c.runtime.ranks);
  table.text("name", &c.name, "NAME", "Of the run: runs/NAME holds config, metrics.jsonl, checkpoints and the export");
  table.kept_folder("runs", &c.runs, "Where runs are kept");
  table.input("data", &s.data, "FILE", "JSONL (docs/own-data.md): {\"messages\"} in the model's chat template, {\"prompt\",\"completion\"}, {\"text\"}, or {\"tokens\",\"weights\"}; `lockstep render --train FILE` shows what is learned");
  table.text("end-token", &s.end_token, "TOKEN", "What ends a trained turn or text: a token or its id (default: the template's own, tokenizer_config.json's eos_token)");
  table.input("chat-template", &s.chat_template, "FILE", "A Jinja template for messages instead of the model's");
  table.text("environment", &s.environment, "NAME", "Instead of --data: the reference completions of an environment, such as countdown");
  table.flag("from-scratch", &c.from_scratch, "Random initial weights; --model then needs config.json and a tokenizer only");
  table.seed("init-seed", &c.init_seed, "Of the initial weights, or of an adapter's");
  table.refused("without --from-scratch or --adapter-rank", [&c] { return !c.from_scratch && c.adapter_rank == 0; });
  table.number("init-deviation", &c.init_deviation, 0, 10, "X", "Standard deviation of the initial matrices");
  table.refused("without --from-scratch", [&c] { return !c.from_scratch; });
  table.seed("seed", &c.seed, "Of the data order");
  table.integer("epochs", &epochs, 1, 1 << 20, "N", "How often the data are gone through", "3; with --steps: as many as those take");
  table.integer("steps", &steps, 1, std::int64_t{1} << 40, "N", "Optimizer steps, instead of --epochs", "as --epochs says");
  table.integer("batch", &batch, 1, 1 << 20, "N", "Sequences a step", "32; with little data an eighth of it");
  table.integer("adapter-rank", &c.adapter_rank, 0, 256, "N", "Train an adapter (LoRA) of this rank over frozen weights, exported as PEFT reads it; 0: all weights");
  table.number("adapter-alpha", &c.adapter_alpha, 0.001, 1e6, "X", "The adapter's output is scaled by this over its rank");
  table.refused("without --adapter-rank", [&c] { return c.adapter_rank == 0; });
  table.input("eval", &s.eval, "FILE", "Measure the loss on these lines too (as --data); they are not learned");
  table.number("eval-share", &s.eval_share, 0, 0.9, "X", "Hold out this share of --data for that, chosen by the seed", "0.1 from 20 sequences on, with --eval 0");
  table.integer("eval-every", &c.eval_every, 0, std::int64_t{1} << 40, "N", "Steps from one evaluation to the next; 0: an epoch's");
  table.integer("patience", &c.patience, 0, 1 << 20, "N", "Stop after so many evaluations without a better loss than the best; 0: never");
  table.integer("micro-batch", &c.micro_batch, 0, 1 << 20, "N", "Sequences computed at a time, 0: all; changes memory, never a bit");
  table.flag("checkpoint-activations", &c.checkpoint_activations, "Drop and recompute activations; changes memory, never a bit");
  table.choice("optimizer-state", &c.optimizer_state, {"memory", "file"}, kOptimizerStateHelp);
  table.number("learning-rate", &c.asked.learning_rate, 0, 10, "X", "Peak learning rate", "2e-5 for all weights of a model of 135 million, more for smaller ones; an adapter: ten times that, at least 1e-4; --from-scratch: 1e-3");
  table.choice("schedule", &c.asked.schedule, {"constant", "linear", "cosine"}, "Learning rate after the warm-up");
  table.number("final-fraction", &c.asked.final_fraction, 0, 1, "X", "Of the peak, at the last step");
  table.refused("with --schedule constant", [&c] { return c.asked.schedule == "constant"; });
  table.integer("warmup", &c.asked.warmup, 0, std::int64_t{1} << 40, "N", "Steps of linear warm-up, at most the run's", "a tenth of the run, at most 100");
  table.number("beta1", &c.beta1, 0, 0.9999999, "X", "AdamW");
  table.number("beta2", &c.beta2, 0, 0.9999999, "X", "AdamW");
  table.number("eps", &c.eps, 0, 1, "X", "AdamW");
  table.number("weight-decay", &c.weight_decay, 0, 10, "X", "AdamW, decoupled, of matrices only");
  table.number("max-norm", &c.max_norm, 0, 1e9, "X", "Gradient norm is clipped to this, 0: not");
  table.number("router-bias-rate", &c.router_bias_rate, 0, 1, "X", "Step of the router's correction bias towards even load");
  table.flag("train-indexer", &c.train_indexer, "The indexer learns by its own KL loss");
  table.integer("index-from", &c.index_from, 0, std::int64_t{1} << 40, "STEP", "From here on the indexer learns");
  table.refused("with --no-train-indexer", [&c] { return !c.train_indexer; });
  table.integer("sparse-from", &c.sparse_from, 0, std::int64_t{1} << 40, "STEP", "From here on attention is sparse; before it is dense");
  table.integer("checkpoint-every", &c.checkpoint_every, 0, std::int64_t{1} << 40, "N", "Steps, 0: only at the end and on an interrupt");
  table.integer("keep-last", &s.keep_last, 0, 1000000, "N", "Checkpoints kept, 0: all");
  table.integer("transcripts", &c.transcripts, 0, 1 << 10, "N", "Sequences of a step that go to transcripts.jsonl, with log-probabilities and mask; 0: none");
  table.integer("transcripts-every", &c.transcripts_every, 1, 1 << 30, "N", "Steps from one that writes transcripts to the next");
  table.refused("with --transcripts 0", [&c] { return c.transcripts == 0; });
  table.integer("transcript-megabytes", &s.transcript_megabytes, 1, 1 << 20, "N", "Of transcripts kept; the oldest half goes first");
  table.refused("with --transcripts 0", [&c] { return c.transcripts == 0; });
  table.choice("export-dtype", &c.export_dtype, {"bf16", "f32"}, "Of the exported model");
  table.output_folder("export-to", &c.export_to, "Where the model is exported, empty: runs/NAME/export");
  table.flag("quiet", &c.quiet, "No progress");
  table.flag("resume", &s.resume, "Go on with a run that exists, to the same bits as if it had never stopped; more --steps are welcome, what changes its mathematics is refused");
  table.command_line_only();
  table.text("fork", &s.fork, "NAME", kForkHelp);
  table.command_line_only();
  s.page.add_options(table);
  add_json_option(table, &s.json);
  table.accept_config();
  if (!table.parse(arguments)) return false;
  if (s.data.empty() == s.environment.empty()) throw UsageError("exactly one of --data and --environment is needed");
  c.overwrite = table.overwrite();
  c.keep_last = static_cast<int>(s.keep_last);
  c.transcript_bytes = s.transcript_megabytes << 20;
  if (epochs && steps) throw UsageError(fmt::format("--epochs is {} and --steps is {}, allowed is one of them", *epochs, *steps));
  if (!s.environment.empty() && !steps) throw UsageError("--environment needs --steps: its problems have no end");
  if (!s.environment.empty() && (epochs || s.eval_share)) throw UsageError("--epochs and --eval-share are of --data; an environment's problems have no end");
  if (!s.eval.empty() && s.eval_share.value_or(0) > 0) throw UsageError("at most one of --eval and --eval-share is allowed");
  c.asked.epochs = epochs.value_or(0);
  c.asked.steps = steps.value_or(0);
  c.asked.batch = batch.value_or(0);
  c.asked.adapter = c.adapter_rank > 0;
  c.asked.from_scratch = c.from_scratch;
  if (!c.quiet) c.say = [](const std::string& sentence) { std::fprintf(stderr, "%s\n", sentence.c_str()); };
  const std::string forked_from = fork_of(c.runs, c.name, s.fork, s.resume);
  c.resolved = resolved_json(table);
  c.resolved["name"] = c.name;
  if (!forked_from.empty()) c.resolved["forked_from"] = forked_from;
  c.resume_line = resume_line("sft", arguments);
  return true;
}

// From 20 sequences on a tenth of the data is worth more as a measure than as data.
double eval_share_of(const SftSettings& s, std::size_t sequences) {
  if (s.eval_share) return *s.eval_share;
  return s.eval.empty() && sequences >= 20 ? 0.1 : 0.0;
}

SftInput read_sft_input(const SftSettings& s, const OpenedModel& opened) {
  const Model& model = *opened.loaded.model;
  const ChatData reader = open_chat_data(s.config.runtime.model, opened.tokenizer, s.end_token, s.chat_template);
  const auto read = [&](const std::string& file) {
    SftData data = read_training_file(file, reader, model.facts().vocabulary, opened.runtime->max_positions);
    if (data.untrained > 0) log_warning("lines of which no token is learned are left out", {{"data", file}, {"lines", data.untrained}, {"learned", data.sequences.size()}});
    return std::move(data.sequences);
  };
  SftInput input;
  if (!s.eval.empty()) input.held_out = read(s.eval);
  if (!s.environment.empty()) {
    if (!opened.tokenizer) fail(ErrorCode::invalid_argument, "an environment needs a tokenizer.json, and '{}' has none", s.config.runtime.model);
    input.train = std::make_unique<EnvironmentSource>(s.environment, reader, s.config.seed);
    return input;
  }
  std::vector<TrainSequence> sequences = read(s.data);
  if (const double share = eval_share_of(s, sequences.size()); share > 0) input.held_out = hold_out(sequences, share, s.config.seed);
  input.train = shuffled_source(std::move(sequences), s.config.seed);
  return input;
}

}  // namespace

int train_sft(const Arguments& arguments) {
  SftSettings s;
  if (!parse(arguments, s)) return kExitOk;
  std::unique_ptr<HttpServer> page_server;
  s.config.on_start = [&] { page_server = s.page.start({.roots = {s.config.runs}, .live = s.config.name}, s.config.name, stderr); };
  const SftSummary summary = run_sft(s.config, [&](const OpenedModel& opened) { return read_sft_input(s, opened); }, s.resume);
  if (summary.interrupted) {
    std::fprintf(stderr, "interrupted at step %lld; saved. To go on:\n  %s\n", static_cast<long long>(summary.steps), s.config.resume_line.c_str());
    return 128 + interrupt_signal();
  }
  page_server.reset();
  const std::string report = write_report_beside(std::filesystem::path(s.config.runs) / s.config.name);
  if (s.json) {
    nlohmann::ordered_json json = {{"steps", summary.steps}, {"tokens", summary.tokens}, {"loss", summary.loss},
                                         {"index_loss", summary.index_loss}, {"seconds", summary.seconds},
                                         {"weights_sha256", summary.weights_sha256}, {"export", summary.exported}, {"report", report}};
    if (summary.eval_before) json["eval_loss_before"] = *summary.eval_before;
    if (summary.eval_loss) json["eval_loss"] = *summary.eval_loss;
    if (summary.stopped_early) json["stopped_early"] = true, json["best_step"] = summary.best_step;
    std::printf("%s\n", json.dump().c_str());
  } else {
    std::printf("%lld steps, %lld tokens in %.0f s, loss %.4f\nweights sha256 %s\nexported to %s\n", static_cast<long long>(summary.steps),
                static_cast<long long>(summary.tokens), summary.seconds, summary.loss, summary.weights_sha256.c_str(), summary.exported.c_str());
    if (summary.eval_before && summary.eval_loss) std::printf("loss of the held-out sequences: %.4f before, %.4f now\n", *summary.eval_before, *summary.eval_loss);
    const std::string name = s.config.name;
    if (s.config.adapter_rank > 0)
      std::printf("try it: lockstep serve --model %s --adapter %s=%s\n", s.config.runtime.model.c_str(), name.c_str(), summary.exported.c_str());
  }
  return kExitOk;
}

}  // namespace lockstep
