// Turns a loss over pairs of answers (DPO and others) into a weight for each token: the cross-entropy with these weights has the gradient of that loss. Also
// computes the scores of answers and the losses themselves.
// Pure functions on the host.
//   PreferenceBatch batch = preference_batch(items, places, references, true);
//   const PreferenceFigures f = preference_figures(settings, batch, trainer.score(batch.trained), {}, true);
//   trainer.forward_backward(batch.trained, sum_of_losses);
#pragma once
#include "losses/preference_losses.h"
#include "runs/preferences/preference_data.h"
#include "runs/preferences/preference_run.h"

namespace lockstep {

// Log-probabilities under the reference; 0 where the loss has none.
struct ReferenceScores {
  double chosen = 0, rejected = 0;
};

// The sequences of some items: trained ones, and (KTO) some that are only scored.
struct PreferenceBatch {
  std::vector<TrainSequence> trained;     // pairs: chosen, rejected, chosen, ...; or labelled answers
  std::vector<TrainSequence> mismatched;  // for labelled answers
  std::vector<ReferenceScores> references;
  std::vector<bool> desirable;
  bool pairs = true;
};
PreferenceBatch preference_batch(const std::vector<PreferenceItem>& items, const std::vector<std::size_t>& places,
                                 const std::vector<ReferenceScores>& references, bool pairs);

// An answer as a reward model reads it: all of its tokens are inputs, and the last one's value is its reward. Error corrupt_file for one that is
// longer than the context.
TrainSequence reward_sequence(const TrainSequence& answer, std::int64_t max_positions);

// The figures of a batch with these log-probabilities of its sequences. With `weigh` the weights of its trained sequences become the loss's
// derivatives: sum(-weight * logprob) has the gradient of the mean loss.
PreferenceFigures preference_figures(const PreferenceSettings& settings, PreferenceBatch& batch, const std::vector<std::vector<float>>& trained,
                                     const std::vector<std::vector<float>>& mismatched, bool weigh);

}  // namespace lockstep
