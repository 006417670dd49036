// `lockstep score`: log-probabilities of given tokens, computed in the requested way.
#include <cstdio>

#include "base/signals.h"
#include "cli/commands.h"
#include "cli/common_options.h"
#include "parity/score.h"
#include "trained/led_model.h"
#include "trained/read_model.h"

namespace lockstep {

int score_command(const Arguments& arguments) {
  RuntimeSettings settings;
  settings.profile = "cpu-f32";
  ProcessSettings processes;
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
  add_transport_options(table, processes, false);
  add_json_option(table, &json, "Print only JSON lines, as without it");
  table.accept_config();
  if (!table.parse(arguments)) return kExitOk;

  if (follow_processes(processes, settings.isa)) return kExitOk;
  const ScoreVia way = score_via_by_name(via);
  if (way != ScoreVia::train) leave_training_ranks_out(settings.ranks);
  install_interrupt_handlers();
  const OpenedModel opened = open_model(settings);
  const std::vector<std::vector<std::int32_t>> sequences = read_sequences(opened, tokens);
  open_beside({.runtime = settings});
  TrainedBase base;
  std::unique_ptr<TrainedModel> together;
  ScoreElsewhere elsewhere;
  if (has_followers() && way == ScoreVia::train) {
    elsewhere.train = [&together](const std::vector<TrainSequence>& data) { return together->score(data); };
  } else {
    elsewhere.lead = joined_mail();
  }
  Scorer scorer(opened, way, adapter, elsewhere);  // says what it cannot score before a model is made over the processes
  if (elsewhere.train) {
    base.opened = opened;
    base.weights = opened.weight_set();
    base.options.ranks = opened.ranks;
    together = make_read_model(base, adapter);
    base.weights.reset();  // its ranks have their shares
  }
  scorer.score(
      sequences, [](const ScoredRow& row) { std::printf("%s\n", to_json_line(row).c_str()); }, interrupt_token());
  return kExitOk;
}

}  // namespace lockstep
