// The input and the results of a training step. Host data only.
//   TrainSequence sequence = TrainSequence::next_token({1, 5, 7, 9}); sequence.weights = {0, 1, 1};
// In a model with a value head (model/value_head.h) each scored target has a value where other models have a log-probability. Its losses are `value`,
// where advantages are the returns and old log-probabilities the values at the time of sampling, and cross_entropy, here -w v, which weighs values by
// a loss that was computed elsewhere.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/kept_tokens.h"
#include "kernels/head/loss_parameters.h"

namespace lockstep {

struct Runtime;
struct TeacherHead;

// One sequence. Input row i predicts K = targets_per_row targets: targets[i * K + k] with weights[i * K + k]. `tokens` has one entry per row,
// everything else one per target; columns that a loss does not need may be empty (train/losses.h).
struct TrainSequence {
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> targets;  // -1: not scored
  std::vector<float> weights;         // 0: masked; may be negative
  std::vector<float> advantages;
  std::vector<float> old_logprobs;  // the sampler's sampling log-probability of the target
  // Declared shared prefix: sequences of a call with the same group (0 or more) have the same first `shared_prefix` tokens, without targets.
  // The prefix is one sequence, in the backward too, so gradients have other bits (docs/numerics.md, "Declared shared prefixes").
  std::int64_t prefix_group = -1, shared_prefix = 0;
  std::int64_t targets_per_row = 1;        // more: a distribution to learn; sequences of a call may differ in it
  std::vector<float> proximal_logprobs;    // the trainer's at the start of the step
  std::vector<float> reference_logprobs;   // the reference model's, for a KL term
  std::vector<float> clip_low, clip_high;  // bounds of the ratio itself, instead of the loss's
  std::vector<float> ratio_mask;           // not 0: the target counts in ratios of its sequence; empty: where its weight is not 0

  // Router replay: experts given to the tokens (model/expert_shape.h), each a row of the model's shape, ascending in every layer, or
  // kOwnExperts throughout; empty: the model routes all tokens. Expert weights and gradients are from the model's own scores of the given experts.
  std::vector<std::int32_t> experts = {};

  // What its targets were drawn from: the softmax of logits / temperature (above 0), over the tokens that sampling kept at each row (all where
  // nothing was cut, and everywhere where this is empty). Log-probabilities, ratios, entropies and gradients are of this distribution.
  float temperature = 1;
  std::vector<KeptTokens> kept_tokens = {};

  // For the loss divergence: the head of the model that its rows are taught by (train/teacher_head.h), one for all sequences of a call or a piece, and
  // that model's hidden states of its tokens, [tokens, inputs of that head].
  std::shared_ptr<const TeacherHead> teacher = {};
  std::vector<float> teacher_states = {};

  // Next-token prediction over a whole text: inputs tokens[0..n-2], targets tokens[1..n-1].
  static TrainSequence next_token(const std::vector<std::int32_t>& tokens);
};

// The divisor of every weight, besides the normaliser:
//   token_mean: nothing more; normaliser 0 means the sum of all weights of the call
//   sum: nothing at all; normaliser 0 means 1
//   sequence_*: normaliser 0 means the number of sequences with a weight; sequence_token_mean also divides by the sum of the sequence's
//   own weights, sequence_token_sum_norm by length_norm
enum class LossAveraging { token_mean, sum, sequence_token_mean, sequence_token_sum, sequence_token_sum_norm };
// Which log-ratio is used: the target's, the mean over its sequence (geometric), or their sum (the product of the ratios).
enum class RatioLevel { token, sequence_mean, sequence_product };

struct LossOptions {
  LossKind kind = LossKind::cross_entropy;
  LossParameters parameters;
  // Every weight is divided by this, if known before the backward; 0: counted over the call.
  double normaliser = 0;
  LossAveraging averaging = LossAveraging::token_mean;
  double length_norm = 0;
  RatioLevel ratio_level = RatioLevel::token, correction_level = RatioLevel::token;
};

// Whether targets get marks (LossMark).
inline bool has_marks(LossKind kind) { return kind != LossKind::none && kind != LossKind::cross_entropy && kind != LossKind::divergence; }

// Metrics of a loss, each named NAME:REDUCTION (mean, sum, min, max): docs/losses.md.
using LossMetrics = std::vector<std::pair<std::string, double>>;

struct ForwardBackwardResult {
  std::vector<std::vector<float>> logprobs;      // per sequence, per target; 0 where not scored
  std::vector<std::vector<float>> entropies;     // per sequence, per row
  std::vector<std::vector<float>> losses;        // per sequence, per target: normalised, weights in; empty when only scored
  std::vector<std::vector<std::int32_t>> marks;  // the same: LossMark; empty where there are none (has_marks)
  double loss = 0;                               // normalised
  double index_loss = 0;                         // mean KL of the indexers per row, 0 when not trained
  std::int64_t rows = 0, scored = 0;             // scored: targets
  // Rows with a gradient of the loss, and sequences with such a row; 0 when only scored.
  std::int64_t gradient_tokens = 0, gradient_sequences = 0;
  LossMetrics metrics;
  // Empty results for this many sequences.
  void make_room(std::size_t sequences, LossKind kind) {
    logprobs.resize(sequences);
    entropies.resize(sequences);
    if (kind != LossKind::none) losses.resize(sequences);
    if (has_marks(kind)) marks.resize(sequences);
  }
};

// Throws invalid_argument for data that no trainer accepts. `declared_allowed`: TrainerOptions::declared_prefixes.
void check_data(const Runtime& runtime, const std::vector<TrainSequence>& data, const LossOptions& loss, bool index_loss, bool declared_allowed);

}  // namespace lockstep
