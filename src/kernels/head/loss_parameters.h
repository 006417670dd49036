// What a training row minimises: the kind of loss and its parameters. Plain values, which a caller of a trainer gives (train/data.h); docs/losses.md has
// every formula, row_loss.h implements them, train/losses.h has their names, defaults and required inputs.
// Notation: lp = the target's log-probability (current), q = the sampler's (old_logprob), o = the trainer's at the start of the step
// (proximal), f = the reference model's, A = advantage, w = weight (mask and normaliser), r = exp(clamp(lp - anchor)).
#pragma once
#include <cstdint>

namespace lockstep {

enum class LossKind : std::int32_t {
  none,
  cross_entropy,        // -w lp
  policy,               // -w min(r A, clip(r) A): ppo, grpo, dapo, gspo
  importance_sampling,  // -w r A
  cispo,                // -w sg(clip(r)) A lp
  dro,                  // -w (A lp - beta/2 (lp - anchor)^2)
  reinforce,            // -w A lp
  dppo_tv,              // -w sg(min(r, cap)) A lp, while |p - p_anchor| is within bounds where it would grow
  dppo_kl,              // the same, bounded by the KL of the target against all others
  sapo,                 // -w (4 / tau) sigmoid(tau (r - 1)) A
  value,                // of a value head alone: w / 2 max((v - R)^2, (held v - R)^2), kernels/value/value.h
  divergence,           // w D of the row's whole distribution and a teacher's, whichever the target is: kernels/head/teacher.h
};
// Of a student's distribution q over the next token and a teacher's p. reverse: KL(q || p). forward: KL(p || q). jensen_shannon: half the KL of each against
// the mean of both.
enum class Divergence : std::int32_t { reverse, forward, jensen_shannon };
// What the ratio's denominator is: the sampler's log-probability, the trainer's at the start of the step, or the current one (r = 1).
enum class RatioAnchor : std::int32_t { sampler, proximal, current };
enum class KlEstimator : std::int32_t { none, k1, k2, k3, unbiased, k3_plus };
// The factor of a policy term that corrects for a sampler that is another policy, from c = exp(o - q) where the ratio is over o, else
// exp(lp - q), so that c times the ratio is exp(lp - q): truncate min(c, high); clip to [low, high]; icepop c inside [low, high], else 0;
// mask 1 inside, else 0. No gradient.
enum class Correction : std::int32_t { none, truncate, clip, icepop, mask };

struct LossParameters {
  float clip_low = 1.0f - 0.2f, clip_high = 1.0f + 0.28f;  // of the ratio itself
  float log_ratio_low = -20.0f, log_ratio_high = 20.0f;    // lp - anchor is clamped to these; no gradient beyond
  float dual_clip = 0.0f;                                  // above 0: where A < 0 the loss is at most -dual_clip A
  float beta = 0.05f;                                      // dro
  bool zero_advantage_is_nothing = true;                   // dro: no quadratic term where A = 0; the other kinds have nothing there anyway
  float trust_low = 0.2f, trust_high = 0.2f;               // dppo: bounds where A < 0 and where A > 0
  float ratio_cap = 20.0f;                                 // dppo
  float tau_positive = 1.0f, tau_negative = 1.05f;         // sapo
  RatioAnchor anchor = RatioAnchor::sampler;
  KlEstimator kl = KlEstimator::none;
  float kl_coefficient = 0.0f;
  float entropy_coefficient = 0.0f;  // the loss is less by this, times w, times the entropy of the row
  Correction correction = Correction::none;
  float correction_low = 0.0f, correction_high = 2.0f;
  Divergence divergence = Divergence::reverse;
};

// What happened to a target, as bits of `marks`.
enum LossMark : std::int32_t {
  kMarkClippedLow = 1,
  kMarkClippedHigh = 2,
  kMarkDualClipped = 4,
  kMarkRatioCapped = 8,
  kMarkCorrectionHigh = 16,
  kMarkCorrectionLow = 32,
  kMarkUntrusted = 64,
};

}  // namespace lockstep
