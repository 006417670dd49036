// `lockstep score`: log-probabilities of given tokens, computed in the requested way.
#include <cstdio>

#include "base/signals.h"
#include "cli/commands.h"
#include "cli/common_options.h"
#include "parity/score.h"

namespace lockstep {

int score_command(const Arguments& arguments) {
  RuntimeSettings settings;
  settings.profile = "cpu-f32";
  std::string tokens, adapter, via = "train";
  bool json = false;
  OptionTable table("score",
                    "Prints log-probabilities of given tokens: for each line {\"tokens\":[...]} of n ids one line "
                    "{\"logprobs\":[...],\"bits\":\"...\"}, the i-th of "
                    "token i+1 given those before, and XXH3-64 of their fp32 bits. Every --via gives the same bits.",
                    {"lockstep score --model models/countdown-glm --tokens sequences.jsonl",
                     "lockstep score --model models/countdown-glm --tokens sequences.jsonl --via decode --threads 1"});
  table.input("tokens", &tokens, "FILE", "JSON lines {\"tokens\":[1,5,7]}").required();
  table.choice("via", &via, score_via_names(), "Which forward: training, or serving by prefill, chunked prefill, or token by token");
  table.input("adapter", &adapter, "DIR", "A PEFT adapter over the model");
  add_runtime_options(table, settings);
  add_ranks_option(table, &settings.ranks);
  add_json_option(table, &json, "Print only JSON lines, as without it");
  table.accept_config();
  if (!table.parse(arguments)) return kExitOk;

  if (score_via_by_name(via) != ScoreVia::train) leave_training_ranks_out(settings.ranks);
  install_interrupt_handlers();
  const OpenedModel opened = open_model(settings);
  const std::vector<std::vector<std::int32_t>> sequences = read_sequences(opened, tokens);
  Scorer scorer(opened, score_via_by_name(via), adapter);
  scorer.score(
      sequences, [](const ScoredRow& row) { std::printf("%s\n", to_json_line(row).c_str()); }, interrupt_token());
  return kExitOk;
}

}  // namespace lockstep
