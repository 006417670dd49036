#include "cli/trained_options.h"

#include "trained/trained_model.h"

namespace lockstep {

void add_trained_options(OptionTable& table, TrainedSettings& s) {
  table.integer(
      "adapter-rank", &s.rank, 0, 256, "N",
      "Train a LoRA adapter of this rank over frozen weights, exported as a PEFT folder; 0: all weights. Its base may be packed: --profile cpu-int4-base");
  table.number("adapter-alpha", &s.alpha, 0.001, 1e6, "X", "The adapter's output is scaled by this over its rank");
  table.refused("without --adapter-rank", [&s] { return s.rank == 0; });
  table.choice("optimizer", &s.optimizer, optimizer_names(),
               "AdamW, or Muon for matrices between hidden states (all of an adapter's) and AdamW for the rest, at 0.015 of the learning rate");
  table.refused("with --optimizer dimuon, whose AdamW has fixed ones", [&s] { return s.optimizer == "dimuon"; }, {"beta2", "eps", "weight-decay"});
}

}  // namespace lockstep
