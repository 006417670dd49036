#include "train/draft_overlap.h"

#include <algorithm>

#include "numerics/elementary_double.h"

namespace lockstep {

namespace {
double probability(float z, const Softmax& of) { return exp_double(static_cast<double>(z) - of.largest) / of.sum; }
}  // namespace

Softmax softmax_of(const float* z, std::int64_t vocabulary) {
  Softmax of{static_cast<double>(*std::max_element(z, z + vocabulary)), 0};
  for (std::int64_t v = 0; v < vocabulary; ++v) of.sum += exp_double(static_cast<double>(z[v]) - of.largest);
  return of;
}

Overlap overlap(const float* model, const Softmax& p, const float* draft, const Softmax& q, std::int64_t vocabulary) {
  Overlap of;
  for (std::int64_t v = 0; v < vocabulary; ++v) {
    const double a = probability(model[v], p), b = probability(draft[v], q);
    of.alpha += std::min(a, b);
    if (b < a) of.below += b;
    if (a < b) of.above += a;
  }
  return of;
}

void overlap_gradient(const float* model, const Softmax& p, float* draft, const Softmax& q, const Overlap& of, double slope, std::int64_t vocabulary) {
  for (std::int64_t v = 0; v < vocabulary; ++v) {
    const double a = probability(model[v], p), b = probability(draft[v], q);
    draft[v] = static_cast<float>(slope * b * ((b < a ? 1.0 : 0.0) - of.below));
  }
}

void model_overlap_gradient(const float* model, const Softmax& p, const float* draft, const Softmax& q, const Overlap& of, double slope,
                            std::int64_t vocabulary, float* gradient) {
  for (std::int64_t v = 0; v < vocabulary; ++v) {
    const double a = probability(model[v], p), b = probability(draft[v], q);
    gradient[v] = static_cast<float>(slope * a * ((a < b ? 1.0 : 0.0) - of.above));
  }
}

double chain_loss(std::span<const double> alphas) {
  double chance = 1, sum = 0;
  for (const double alpha : alphas) sum += chance *= alpha;
  return 1 - sum / static_cast<double>(alphas.size());
}

std::vector<double> chain_slopes(std::span<const double> alphas) {
  std::vector<double> slopes;
  double before = 1;  // the product of those before
  for (std::size_t k = 0; k < alphas.size(); before *= alphas[k++]) {
    double without = before, sum = before;
    for (std::size_t j = k + 1; j < alphas.size(); ++j) sum += without *= alphas[j];
    slopes.push_back(-sum / static_cast<double>(alphas.size()));
  }
  return slopes;
}

std::vector<DraftChain> draft_chains(const std::vector<TrainSequence>& data, const std::vector<std::size_t>& part, std::int64_t depths) {
  std::vector<DraftChain> chains;
  std::int64_t first = 0;
  for (const std::size_t s : part) {
    const auto rows = static_cast<std::int64_t>(data[s].tokens.size());
    for (std::int64_t p = 1; p + depths <= rows; ++p)
      if (const float weight = data[s].weights[static_cast<std::size_t>(p)]; weight != 0 && data[s].targets[static_cast<std::size_t>(p)] >= 0)
        chains.push_back({static_cast<std::int32_t>(first + p), weight});
    first += rows;
  }
  return chains;
}

}  // namespace lockstep
