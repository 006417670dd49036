// How likely drafts are accepted, computed on the host in double, each sum in the order of the vocabulary (docs/numerics.md, "Multi-token
// prediction"). p is the model's distribution, q the draft's, the softmax of its logits. Any thread.
// - overlap: alpha = sum over v of min(p(v), q(v)), the probability that rejection sampling accepts a draft token drawn from q
// - its derivative by the draft's logits and, where the model learns from it too, by the model's; what is equal counts for neither
// - loss of a chain of n drafts: 1 - (1 / n) sum over j of (product over i <= j of alpha_i)
//   const Softmax p = softmax_of(model_logits, n), q = softmax_of(draft_logits, n); const Overlap o = overlap(model_logits, p, draft_logits, q, n);
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "train/data.h"

namespace lockstep {

struct Softmax {
  double largest = 0, sum = 0;  // exp(z - largest) / sum
};
Softmax softmax_of(const float* z, std::int64_t vocabulary);

struct Overlap {
  double alpha = 0;
  double below = 0;  // the sum of q where it is below p
  double above = 0;  // the sum of p where it is below q
};
Overlap overlap(const float* model, const Softmax& p, const float* draft, const Softmax& q, std::int64_t vocabulary);
// Replaces the draft's logits by their gradient, for a loss whose derivative by alpha is `slope`: slope q (1 - below) where q is below p, else
// -slope q below.
void overlap_gradient(const float* model, const Softmax& p, float* draft, const Softmax& q, const Overlap& of, double slope, std::int64_t vocabulary);
// The gradient of the model's logits, in the same way: slope p (1 - above) where p is below q, else -slope p above.
void model_overlap_gradient(const float* model, const Softmax& p, const float* draft, const Softmax& q, const Overlap& of, double slope,
                            std::int64_t vocabulary, float* gradient);

double chain_loss(std::span<const double> alphas);
std::vector<double> chain_slopes(std::span<const double> alphas);  // the derivatives of chain_loss by each alpha

// A row that begins a chain of drafts.
struct DraftChain {
  std::int32_t row = 0;  // of the sequences' rows, one after another
  float weight = 0;      // of its first target
};
// The chains of the sequences `part`, ascending: a scored row with a weight begins one if at least `depths` of its following tokens are known.
// Position 0 begins none.
std::vector<DraftChain> draft_chains(const std::vector<TrainSequence>& data, const std::vector<std::size_t>& part, std::int64_t depths);

}  // namespace lockstep
