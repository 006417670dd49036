// `lockstep index-share`: what layers with sparse attention select, on given tokens (parity/index_overlap.h), which of their indexers can go
// (parity/index_search.h), and the model without them (jobs/index_conversion.h).
#include <cstdio>
#include <optional>

#include "api/openai/chat_messages.h"
#include "base/signals.h"
#include "cli/command_kinds.h"
#include "cli/commands.h"
#include "cli/common_options.h"
#include "cli/shipped.h"
#include "jobs/index_conversion.h"
#include "observe/progress.h"
#include "parity/index_overlap.h"
#include "parity/index_search.h"
#include "parity/score.h"
#include "serving/conversion.h"

namespace lockstep {
namespace {

// Prints the findings of a model on given tokens: as one JSON object, or as text.
template <class Found>
int tell(const OpenedModel& opened, const Found& found, bool json) {
  if (!json) {
    std::fputs(to_text(found).c_str(), stdout);
    return kExitOk;
  }
  nlohmann::ordered_json out{{"model", opened.name}, {"profile", opened.runtime->profile.name}};
  out.update(to_json(found));
  std::printf("%s\n", out.dump().c_str());
  return kExitOk;
}

int overlap_command(const Arguments& arguments) {
  RuntimeSettings settings;
  std::string data;
  bool json = false;
  OptionTable table("index-share overlap",
                    "Measures what the layers of a model with sparse attention select: which share of their keys two indexers have in common, by layers and by "
                    "distance, and how much of a layer's dense attention lies inside the selection that it uses.",
                    {"lockstep index-share overlap --model models/countdown-glm --data sequences.jsonl",
                     "lockstep index-share overlap --model models/countdown-glm --data sequences.jsonl --json"});
  table.input("data", &data, "FILE", "JSON lines {\"tokens\":[1,5,7]}; one at least has more tokens than a row selects keys").required();
  add_runtime_options(table, settings);
  add_json_option(table, &json);
  table.accept_config();
  if (!table.parse(arguments)) return kExitOk;

  install_interrupt_handlers();
  const OpenedModel opened = open_model(settings);
  const std::vector<std::vector<std::int32_t>> sequences = read_sequences(opened, data);
  const IndexOverlap overlap = with_context(fmt::format("'{}'", settings.model),
                                            [&] { return measure_index_overlap(*opened.runtime, *opened.weight_set(), sequences, interrupt_token()); });
  return tell(opened, overlap, json);
}

int search_command(const Arguments& arguments) {
  RuntimeSettings settings;
  std::string data;
  IndexSearchSettings search;
  bool json = false, quiet = false;
  OptionTable table(
      "index-share search",
      "Finds which indexers of a model with sparse attention can go with the least harm to the loss on given tokens: they are left out one by one, "
      "and the layers behind use the selection of the last one that is left. Nothing is trained or written.",
      {"lockstep index-share search --model models/countdown-glm --data sequences.jsonl --indexers 1",
       "lockstep index-share search --model models/countdown-glm --data sequences.jsonl --exhaustive --json"});
  table.input("data", &data, "FILE", "JSON lines {\"tokens\":[1,5,7]}, whose tokens the model predicts").required();
  table.integer("indexers", &search.indexers, 1, 4096, "N", "How many are left; the first layer's always is");
  table.flag("exhaustive", &search.exhaustive, fmt::format("Try every choice of so many, of a model of at most {} layers", kExhaustiveLayers));
  add_runtime_options(table, settings);
  table.flag("quiet", &quiet, "No progress");
  add_json_option(table, &json);
  table.accept_config();
  if (!table.parse(arguments)) return kExitOk;

  install_interrupt_handlers();
  const OpenedModel opened = open_model(settings);
  const std::vector<std::vector<std::int32_t>> sequences = read_sequences(opened, data);
  search.model.mla_norm_eps = settings.mla_norm_eps;
  std::optional<Progress> progress;
  search.on_tried = [&](std::int64_t tried, std::int64_t of) {
    if (of == 1) return;  // there is nothing to choose
    if (!progress) progress.emplace(Progress::Options{.label = "search", .total = of, .unit = "choices", .quiet = quiet || json});
    progress->advance();
    if (tried == of) progress->finish();
  };
  const IndexSearch found = with_context(fmt::format("'{}'", settings.model),
                                         [&] { return search_indexers(*opened.runtime, *opened.weight_set(), sequences, search, interrupt_token()); });
  return tell(opened, found, json);
}

int convert_indexers_command(const Arguments& arguments) {
  IndexConversion c;
  OptionTable table(
      "index-share convert",
      "Writes a model with fewer indexers: config.json says which layers have one, the tensors of the others are left out, all else is as it was. "
      "With --data the indexers that are left are trained, by the mean over the layers that use each one's selection, all other weights frozen: "
      "Ctrl-C saves, and the same command goes on to the same bits. `train sft` would train them with the model.",
      {"lockstep index-share convert models/countdown-glm OUT --pattern FSSS",
       "lockstep index-share convert models/countdown-glm OUT --pattern FSSS --data my.jsonl --steps 500"});
  table.positional("FROM", &c.from, true, "Model folder, GGUF file, or the name of a shipped model: countdown-glm, agent-glm");
  table.output_folder("OUT", &c.to, "Folder to write").positional().required();
  table.text("pattern", &c.pattern, "LETTERS", "A letter a layer: F keeps its indexer, S uses the selection of the last layer before it that has one")
      .required();
  table.choice("dtype", &c.dtype, {"f32", "bf16"}, "Of the weights: f32 keeps every value of the file, bf16 rounds to nearest even");
  table.input("data", &c.data, "FILE", "Train the indexers on these texts: JSONL as of train sft; the run is in OUT-training");
  table.integer("steps", &c.steps, 1, std::int64_t{1} << 40, "N", "Optimizer steps");
  table.integer("batch", &c.batch, 0, 1 << 20, "N", "Sequences per step; 0: 32, with little data an eighth of it");
  table.number("learning-rate", &c.learning_rate, 0, 10, "X", "Peak learning rate");
  table.integer("dense-steps", &c.dense_steps, 0, std::int64_t{1} << 40, "N",
                "First steps, in which every row attends to all keys and the indexer learns from all");
  table.seed("seed", &c.seed, "Seed of the data order");
  table.integer("threads", &c.threads, 0, 4096, "N", "Threads; 0: all processors");
  table.flag("quiet", &c.quiet, "No progress");
  table.refused("without --data", [&c] { return c.data.empty(); }, {"steps", "batch", "learning-rate", "dense-steps", "seed", "threads", "quiet"});
  if (!table.parse(arguments)) return kExitOk;
  c.from = shipped("models", c.from);
  c.overwrite = table.overwrite();
  if (c.data.empty()) {
    convert_indexers(c.from, c.to, c.pattern, c.dtype == "bf16" ? DType::bf16 : DType::f32, c.overwrite);
    std::printf("%s\n", c.to.c_str());
    return kExitOk;
  }
  c.reading = {chat_messages, chat_tools};
  c.on_start = install_interrupt_handlers;
  c.stop = interrupt_token();
  if (!c.quiet) c.say = [](const std::string& sentence) { std::fprintf(stderr, "%s\n", sentence.c_str()); };
  const SftSummary summary = convert_and_train(c);
  if (summary.interrupted) {
    std::fprintf(stderr, "interrupted at step %lld of %lld; saved, and the same command goes on\n", static_cast<long long>(summary.steps),
                 static_cast<long long>(c.steps));
    return 128 + interrupt_signal();
  }
  std::printf("%lld steps, index loss %.5f\nweights sha256 %s\n", static_cast<long long>(summary.steps), summary.index_loss, summary.weights_sha256.c_str());
  if (summary.eval_before && summary.eval_loss)
    std::printf("loss of the held-out sequences: %.4f before, %.4f now\n", *summary.eval_before, *summary.eval_loss);
  std::printf("%s\n", c.to.c_str());
  return kExitOk;
}

}  // namespace

int index_share_command(const Arguments& arguments) {
  return run_kind("index-share", {{"overlap", overlap_command}, {"search", search_command}, {"convert", convert_indexers_command}},
                  "usage: lockstep index-share KIND [options]\n\n"
                  "  overlap     what the layers of a model with sparse attention select, and what they have in common\n"
                  "  search      which of their indexers can go with the least harm to the loss\n"
                  "  convert     the model with fewer indexers\n\n"
                  "`lockstep index-share KIND --help` lists its options; docs/long-context.md says what they are for.\n",
                  arguments);
}

}  // namespace lockstep
