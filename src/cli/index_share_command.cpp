// `lockstep index-share`: what layers with sparse attention select, on given tokens (parity/index_overlap.h), which of their indexers can go
// (parity/index_search.h), and the model without them (serving/conversion.h).
#include <cstdio>
#include <optional>

#include "base/signals.h"
#include "cli/command_kinds.h"
#include "cli/commands.h"
#include "cli/common_options.h"
#include "cli/shipped.h"
#include "observe/progress.h"
#include "parity/index_overlap.h"
#include "parity/index_search.h"
#include "parity/score.h"
#include "serving/conversion.h"

namespace lockstep {
namespace {

// What was found of a model on given tokens: as one object, or as text.
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
  std::string from, to, pattern, dtype = "f32";
  OptionTable table(
      "index-share convert",
      "Writes a model with fewer indexers: config.json says which layers have one, the tensors of the others are left out, all else is as it was. "
      "`train sft` then trains the indexers that are left, with the model or alone.",
      {"lockstep index-share convert models/countdown-glm OUT --pattern FSSS"});
  table.positional("FROM", &from, true, "Model folder, GGUF file, or the name of a shipped model: countdown-glm, agent-glm");
  table.output_folder("OUT", &to, "Folder to write").positional().required();
  table.text("pattern", &pattern, "LETTERS", "A letter a layer: F keeps its indexer, S uses the selection of the last layer before it that has one").required();
  table.choice("dtype", &dtype, {"f32", "bf16"}, "Of the weights: f32 keeps every value of the file, bf16 rounds to nearest even");
  if (!table.parse(arguments)) return kExitOk;
  convert_indexers(shipped("models", from), to, pattern, dtype == "bf16" ? DType::bf16 : DType::f32, table.overwrite());
  std::printf("%s\n", to.c_str());
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
