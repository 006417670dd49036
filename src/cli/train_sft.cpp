// `lockstep train sft`: supervised fine-tuning from a JSONL file or from an environment's reference completions.
#include <cstdio>

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
  EnvironmentSource(const std::string& name, std::shared_ptr<const Tokenizer> tokenizer, std::int32_t end_token, std::uint64_t seed)
      : environment_(make_environment(name)), tokenizer_(std::move(tokenizer)), end_token_(end_token), seed_(seed) {}
  std::vector<TrainSequence> batch(std::int64_t step, std::int64_t count) const override {
    std::vector<TrainSequence> sequences;
    for (std::int64_t i = step * count; i < (step + 1) * count; ++i) {
      const Problem problem = environment_->problem(Split::train, seed_, static_cast<std::uint64_t>(i));
      sequences.push_back(prompt_completion_sequence(*tokenizer_, problem.prompt, environment_->reference_completion(problem), end_token_));
    }
    return sequences;
  }

 private:
  std::unique_ptr<Environment> environment_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::int32_t end_token_;
  std::uint64_t seed_;
};

struct SftSettings {
  SftConfig config;
  std::string data, environment;
  std::int64_t keep_last = 2, transcript_megabytes = SftConfig().transcript_bytes >> 20;
  bool resume = false, json = false;
  LivePage page;
};

bool parse(const Arguments& arguments, SftSettings& s) {
  SftConfig& c = s.config;
  OptionTable table("train sft", "Fine-tunes a model on texts; in a sparse-attention model the indexer learns beside it.",
                    {"lockstep train sft --config recipes/countdown_sft.toml",
                     "lockstep train sft --model models/countdown-glm --data my.jsonl --name my-run --steps 200"});
  add_runtime_options(table, c.runtime);
  add_ranks_option(table, &c.runtime.ranks);
  table.text("name", &c.name, "NAME", "Of the run: runs/NAME holds config, metrics.jsonl, checkpoints and the export");
  table.text("runs", &c.runs, "DIR", "Where runs are kept");
  table.text("data", &s.data, "FILE", "JSONL of {\"prompt\",\"completion\"} or {\"tokens\",\"weights\"} lines (weights aligned to targets)");
  table.text("environment", &s.environment, "NAME", "Instead of --data: the reference completions of an environment, such as countdown");
  table.flag("from-scratch", &c.from_scratch, "Random initial weights; --model then needs config.json and a tokenizer only");
  table.seed("init-seed", &c.init_seed, "Of the initial weights");
  table.refused("without --from-scratch", [&c] { return !c.from_scratch; });
  table.number("init-deviation", &c.init_deviation, 0, 10, "X", "Standard deviation of the initial matrices");
  table.refused("without --from-scratch", [&c] { return !c.from_scratch; });
  table.seed("seed", &c.seed, "Of the data order");
  table.integer("steps", &c.schedule.steps, 1, std::int64_t{1} << 40, "N", "Optimizer steps");
  table.integer("batch", &c.batch, 1, 1 << 20, "N", "Sequences a step");
  table.integer("micro-batch", &c.micro_batch, 0, 1 << 20, "N", "Sequences computed at a time, 0: all; changes memory, never a bit");
  table.flag("checkpoint-activations", &c.checkpoint_activations, "Drop and recompute activations; changes memory, never a bit");
  table.choice("optimizer-state", &c.optimizer_state, {"memory", "file"}, kOptimizerStateHelp);
  table.number("learning-rate", &c.schedule.peak, 0, 10, "X", "Peak learning rate");
  table.choice("schedule", &c.schedule.kind, {"constant", "linear", "cosine"}, "Learning rate after the warm-up");
  table.number("final-fraction", &c.schedule.final_fraction, 0, 1, "X", "Of the peak, at the last step");
  table.refused("with --schedule constant", [&c] { return c.schedule.kind == "constant"; });
  table.integer("warmup", &c.schedule.warmup, 0, std::int64_t{1} << 40, "N", "Steps of linear warm-up");
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
  table.text("export-to", &c.export_to, "DIR", "Where the model is exported, empty: runs/NAME/export");
  table.flag("quiet", &c.quiet, "No progress");
  table.flag("resume", &s.resume, "Go on with a run that exists, to the same bits as if it had never stopped");
  table.command_line_only();
  s.page.add_options(table);
  add_json_option(table, &s.json);
  table.accept_config();
  if (!table.parse(arguments)) return false;
  if (s.data.empty() == s.environment.empty()) throw UsageError("exactly one of --data and --environment is needed");
  c.keep_last = static_cast<int>(s.keep_last);
  c.transcript_bytes = s.transcript_megabytes << 20;
  c.resolved = resolved_json(table);
  c.resume_line = resume_line("sft", arguments);
  return true;
}

}  // namespace

int train_sft(const Arguments& arguments) {
  SftSettings s;
  if (!parse(arguments, s)) return kExitOk;
  std::unique_ptr<HttpServer> page_server;
  s.config.on_start = [&] { page_server = s.page.start({.roots = {s.config.runs}, .live = s.config.name}, s.config.name, stderr); };
  const SftSummary summary = run_sft(s.config, [&](const OpenedModel& opened) -> std::unique_ptr<SftSource> {
    const Model& model = *opened.loaded.model;
    if (model.eos_tokens.empty()) fail(ErrorCode::invalid_argument, "config.json has no 'eos_token_id': a completion needs an end token");
    const auto end = static_cast<std::int32_t>(model.eos_tokens[0]);
    if (s.environment.empty())
      return jsonl_source(s.data, opened.tokenizer.get(), end, s.config.seed, model.vocabulary, opened.runtime->max_positions);
    if (!opened.tokenizer) fail(ErrorCode::invalid_argument, "an environment needs a tokenizer.json, and '{}' has none", s.config.runtime.model);
    return std::make_unique<EnvironmentSource>(s.environment, opened.tokenizer, end, s.config.seed);
  }, s.resume);
  if (summary.interrupted) {
    std::fprintf(stderr, "interrupted at step %lld; saved. To go on:\n  %s\n", static_cast<long long>(summary.steps), s.config.resume_line.c_str());
    return 128 + interrupt_signal();
  }
  page_server.reset();
  const std::string report = write_report_beside(std::filesystem::path(s.config.runs) / s.config.name);
  if (s.json) {
    const nlohmann::ordered_json json = {{"steps", summary.steps}, {"tokens", summary.tokens}, {"loss", summary.loss},
                                         {"index_loss", summary.index_loss}, {"seconds", summary.seconds},
                                         {"weights_sha256", summary.weights_sha256}, {"export", summary.exported}, {"report", report}};
    std::printf("%s\n", json.dump().c_str());
  } else {
    std::printf("%lld steps, %lld tokens in %.0f s, loss %.4f\nweights sha256 %s\nexported to %s\n", static_cast<long long>(summary.steps),
                static_cast<long long>(summary.tokens), summary.seconds, summary.loss, summary.weights_sha256.c_str(), summary.exported.c_str());
  }
  return kExitOk;
}

}  // namespace lockstep
