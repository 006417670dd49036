// What the losses of host/batch_loss.h have in common: options and inputs of a client's batch, checked, and what the trainer sees of it. For their own
// files alone. Errors invalid_argument and unsupported name the option, or the datum and its input.
#pragma once
#include <functional>

#include "host/batch_loss.h"
#include "losses/preference_losses.h"

namespace lockstep {

// `names`: the loss's options; share_prompts is one of every loss.
[[noreturn]] void wrong_option(const std::string& loss, const std::string& name, std::vector<std::string> names);

// What the trainer sees: a cross-entropy, whose weights come later, of the inputs whose names `stays` says yes to. A batch with kept tokens is refused;
// `why` goes on from "... is given, and".
PreparedBatch prepare_plain(const TrainingBatch& batch, const BatchLimits& limits, const std::string& why,
                            const std::function<bool(const std::string&)>& stays);
std::string whole_vocabulary(const std::string& loss);  // such a `why`

// Reads the options that the row takes into `settings`, which get its default of beta, and are checked. True: averaging is `mean`, and not `sum`.
bool read_preference_options(const LossRequest& wanted, const PreferenceRow& row, const std::string& mean, PreferenceSettings& settings);
// Each datum has the reference's log-probabilities, where the row compares with one.
void check_references(const TrainingBatch& batch, const PreferenceRow& row);
// Each datum has these inputs alone: what the loss does not read would have no effect.
void check_inputs(const TrainingBatch& batch, const std::vector<std::string>& names);
// Each datum's weights sum to more than 0.
void check_trained_tokens(const PreparedBatch& prepared);

// Over single answers with a label (KTO).
std::unique_ptr<BatchLoss> make_labelled_batch_loss(const TrainingBatch& batch, const BatchLimits& limits, PreparedBatch& prepared);

}  // namespace lockstep
