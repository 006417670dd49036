// Option rows for what a run trains (all parameters or an adapter) and its optimizer (trained/trained_settings.h). One thread.
//   add_trained_options(table, settings);
#pragma once
#include "cli/options.h"
#include "runs/local_mtp.h"
#include "trained/trained_settings.h"

namespace lockstep {

// Call after add_adamw_options: rows of AdamW are refused for other optimizers. `settings` outlives the table.
void add_trained_options(OptionTable& table, TrainedSettings& settings);

// Options of the layer of multi-token prediction that is trained along; in a file the keys of [mtp]. They outlive the table.
void add_mtp_options(OptionTable& table, MtpSettings& settings);

}  // namespace lockstep
