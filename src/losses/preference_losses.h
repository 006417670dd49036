// Losses over pairs of answers to one prompt, and over single answers with a label (KTO): values, derivatives and rewards, as functions of each
// answer's log-probability under the trained model and under a reference. The loss's gradient by each log-probability of the chosen answer is
// chosen_slope times the token's weight. In double without libm; formulas and sources: docs/preferences.md. A new one is a row here and a case in
// preference_loss. Pure functions.
//   const PreferenceValue v = preference_loss({.loss = "dpo", .beta = 0.1}, chosen, rejected);
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "train/data.h"

namespace lockstep {

// One answer: sums over its trained tokens.
struct AnswerScore {
  double logprob = 0;    // of weight * log-probability, under what is trained
  double reference = 0;  // the same under the reference; 0 where the loss has none
  double weight = 0;     // of the weights: the number of tokens where each is 1; above 0
};

// The score of an answer over its trained tokens (weight not 0). `reference`: its log-probability under the reference.
AnswerScore answer_score(const TrainSequence& answer, const std::vector<float>& logprobs, double reference);
// Multiplies the answer's weights by -slope: their cross-entropy then has the gradient of a loss whose derivative by the log-probability is `slope`.
void weigh_answer(TrainSequence& answer, double slope);

// Which settings a loss takes, in the order of PreferenceSettings.
enum PreferenceOption : unsigned { kBeta = 1, kLabelSmoothing = 2, kGamma = 4, kAlpha = 8, kLabelWeights = 16 };

struct PreferenceRow {
  std::string_view name, formula;
  bool reference;       // it compares with a reference
  bool pairs;           // of a chosen and a rejected answer; else single ones with a label
  unsigned options;     // of PreferenceOption
  double beta;          // the default
  bool values = false;  // it compares the values that a value head gives at the end of answers: trains a reward model
};
const std::vector<PreferenceRow>& preference_rows();
std::vector<std::string> preference_names();
// Error invalid_argument for an unknown name, with the nearest.
const PreferenceRow& preference_row(std::string_view name);

struct PreferenceSettings {
  std::string loss = "dpo";
  double beta = 0.1;                                    // above 0
  double label_smoothing = 0.1;                         // cdpo, robust: the share of labels that are wrong, 0 to below 0.5
  double gamma = 0.5;                                   // simpo: the target margin
  double alpha = 1;                                     // cpo: of the chosen answer's likelihood
  double desirable_weight = 1, undesirable_weight = 1;  // kto
};
// invalid_argument with the setting, the value and what is allowed.
void check(const PreferenceSettings& settings);

struct PreferenceValue {
  double loss = 0;
  double chosen_slope = 0, rejected_slope = 0;    // of the loss by AnswerScore::logprob
  double chosen_reward = 0, rejected_reward = 0;  // what the loss compares, times beta
};
// A loss over pairs.
PreferenceValue preference_loss(const PreferenceSettings& settings, const AnswerScore& chosen, const AnswerScore& rejected);

// KTO. `shift`: kto_shift of the batch, with which the answer is compared. Results are in the fields of the chosen answer.
PreferenceValue labelled_loss(const PreferenceSettings& settings, const AnswerScore& answer, bool desirable, double shift);
// max(0, the mean of logprob - reference) over answers to other prompts; without gradient. 0 for none.
double kto_shift(const std::vector<AnswerScore>& mismatched);

// Rewards of good answers beside those of bad ones: their means, 0 for none, and of all pairs the share in which the good answer's is higher, half where
// they are equal; 0.5 without pairs. Work grows as n log n.
struct LabelledRewards {
  double good = 0, bad = 0, accuracy = 0.5;
};
LabelledRewards labelled_rewards(const std::vector<double>& good, const std::vector<double>& bad);

}  // namespace lockstep
