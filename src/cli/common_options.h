// Option rows that several commands share. Knows the option table and the settings they fill. One thread.
//   add_runtime_options(table, settings);
#pragma once
#include "cli/options.h"
#include "serving/loading.h"
#include "serving/serving.h"

namespace lockstep {

struct ProcessSettings;  // trained/led_model.h

// --model (required), --profile, --threads, --backend, --isa, --mla-norm-eps, --context; defaults are what `settings` holds.
void add_runtime_options(OptionTable& table, RuntimeSettings& settings);
// --model; not required, unless the caller makes the returned row required().
Option& add_model_option(OptionTable& table, RuntimeSettings& settings);
// All of them but --model.
void add_device_options(OptionTable& table, RuntimeSettings& settings);
// --ranks: how the model and the work are laid out.
void add_ranks_option(OptionTable& table, std::string* ranks);
// Of a command that samples and does not train: leaves dp and cp, which help training steps alone, out of its layout and warns of it, so that the ranks that
// compute share all threads. Error invalid_argument: those are fewer than the joined processes.
void leave_training_ranks_out(std::string& ranks);
// --transport, --rank-timeout: how ranks communicate, for a command that calls follow_processes (trained/led_model.h) before anything else.
// `devices`: whether its ranks may be GPUs (nccl).
void add_transport_options(OptionTable& table, ProcessSettings& settings, bool devices = true);
// --beta1, --beta2, --eps, --weight-decay, --max-norm of AdamW, into settings that name them alike.
template <class Settings>
void add_adamw_options(OptionTable& table, Settings& s, double most_weight_decay) {
  table.number("beta1", &s.beta1, 0, 0.9999999, "X", "AdamW's beta1");
  table.number("beta2", &s.beta2, 0, 0.9999999, "X", "AdamW's beta2");
  table.number("eps", &s.eps, 0, 1e38, "X", "AdamW's epsilon");
  table.number("weight-decay", &s.weight_decay, 0, most_weight_decay, "X", "AdamW's decoupled weight decay, of matrices only");
  table.number("max-norm", &s.max_norm, 0, 1e9, "X", "Clip the gradient to this norm; 0: off");
}
// --speculate, --draft-tokens and --acceptance: speculative decoding (docs/speculation.md); `drafts` is set when the table has read all options.
// `rejects` false: without --acceptance, for commands that compare bits with those of decoding without drafts.
void add_draft_options(OptionTable& table, DraftOptions& drafts, std::string usual = "auto", std::string name = "speculate", bool rejects = true);
// --json; `one_line`: its help text.
void add_json_option(OptionTable& table, bool* json, std::string one_line = "Print one JSON object and nothing else");
// The value of --api-key or, if it is empty, that of the variable LOCKSTEP_API_KEY, which does not show in the list of processes.
std::string given_key(const std::string& key);

}  // namespace lockstep
