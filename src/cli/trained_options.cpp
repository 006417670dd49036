#include "cli/trained_options.h"

#include "trained/trained_model.h"

namespace lockstep {

void add_trained_options(OptionTable& table, TrainedSettings& s) {
  table.integer(
      "adapter-rank", &s.rank, 0, 256, "N",
      "Train a LoRA adapter of this rank over frozen weights, exported as a PEFT folder; 0: all weights. Its base may be quantised: --profile cpu-int4-base");
  table.number("adapter-alpha", &s.alpha, 0.001, 1e6, "X", "The adapter's output is scaled by this over its rank");
  table.refused("without --adapter-rank", [&s] { return s.rank == 0; });
  table.choice("optimizer", &s.optimizer, optimizer_names(),
               "AdamW, or Muon for matrices between hidden states (all of an adapter's) and AdamW for the rest, at 0.015 of the learning rate");
  table.refused("with --optimizer dimuon, whose AdamW has fixed ones", [&s] { return s.optimizer == "dimuon"; }, {"beta2", "eps", "weight-decay"});
}

void add_mtp_options(OptionTable& table, MtpSettings& s) {
  table.integer(
      "mtp-depths", &s.depths, 0, MtpSettings::kMostDepths, "N",
      "Train the model's layer of multi-token prediction, or a new one, to say so many tokens ahead, for drafts (docs/speculation.md); no other weight "
      "depends on it, but with --mtp-joint of `train sft`; 0: it stays as it is");
  table.choice("mtp-loss", &s.loss, mtp_losses(), "Its loss: cross-entropy, total variation of its drafts against the model end to end, or their sum");
  table.choice(
      "mtp-keys", &s.keys, mtp_keys(),
      "Whether tokens further ahead use the selection and keys of the first, or each its own, for comparison; auto: as config.json says, a new layer's are "
      "shared");
  table.choice("mtp-state", &s.state, mtp_states(),
               "What a token further ahead is given of the one before: the layer's normed output or the unnormed one; auto: as config.json says, a new layer's "
               "is normed");
  table.number("mtp-learning-rate", &s.learning_rate, 0, 10, "X", "Peak learning rate of that layer, under the same schedule");
  table.number("mtp-max-norm", &s.max_norm, 0, 1e9, "X", "Its gradient's norm is clipped to this, 0: not");
  table.number("mtp-router-bias-rate", &s.router_bias_rate, 0, 1, "X", "Step of its router's correction bias towards even load");
  table.refused("without --mtp-depths", [&s] { return s.depths == 0; },
                {"mtp-loss", "mtp-keys", "mtp-state", "mtp-learning-rate", "mtp-max-norm", "mtp-router-bias-rate"});
}

}  // namespace lockstep
