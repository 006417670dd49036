// Option rows of what a run trains: all parameters or an adapter, and by which optimizer (trained/trained_settings.h). One thread.
//   add_trained_options(table, settings);
#pragma once
#include "cli/options.h"
#include "runs/local_mtp.h"
#include "trained/trained_settings.h"

namespace lockstep {

// Behind add_adamw_options, whose rows it says when are idle. `settings` outlives the table.
void add_trained_options(OptionTable& table, TrainedSettings& settings);

// The layer of multi-token prediction that is trained beside; in a file the keys of [mtp]. Both outlive the table.
void add_mtp_options(OptionTable& table, MtpSettings& settings, const TrainedSettings& trained);

}  // namespace lockstep
