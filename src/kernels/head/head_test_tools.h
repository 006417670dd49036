// A batch for tests of the head, and its operations. Tests only.
//   const HeadBatch batch = make_head_batch(20, 64, 100, LossKind::policy, 1); const Head head = head_of(bench, batch, 16, true); head.launch(bench);
#pragma once
#include "base/kept_tokens.h"
#include "kernels/head/head.h"
#include "kernels/kernel_test_tools.h"
#include "kernels/launch.h"
#include "numerics/elementary_double.h"

namespace lockstep {

// One batch: everything a loss depends on.
struct HeadBatch {
  std::int64_t rows, inputs, vocabulary;
  LossKind kind = LossKind::cross_entropy;
  std::int64_t segment_length = 5;
  std::int64_t targets = 1;  // a row
  std::vector<float> x{}, w{}, weight{}, advantage{}, old_logprob{}, proximal{}, reference{};
  std::vector<std::int32_t> target{}, segment{};
  LossParameters parameters{};
};

inline HeadBatch make_head_batch(std::int64_t rows, std::int64_t inputs, std::int64_t vocabulary, LossKind kind, std::uint64_t seed, std::int64_t targets = 1) {
  HeadBatch b{rows, inputs, vocabulary, kind};
  b.targets = targets;
  const std::int64_t n = rows * targets;
  const double likely = -log_double(static_cast<double>(vocabulary));
  b.x = random_floats(rows * inputs, seed, -2, 2);
  b.w = random_floats(vocabulary * inputs, seed + 1, -0.5, 0.5);
  b.weight = random_floats(n, seed + 2, 0.1, 1);
  b.advantage = random_floats(n, seed + 3, -2, 2);
  // Near the log-probability of a random model, so that clipped and unclipped rows of both signs occur.
  b.old_logprob = random_floats(n, seed + 4, likely - 1, likely + 1);
  b.proximal = random_floats(n, seed + 6, likely - 1, likely + 1);
  b.reference = random_floats(n, seed + 7, likely - 1, likely + 1);
  b.target = random_ints(n, seed + 5, static_cast<std::int32_t>(vocabulary));
  for (std::int64_t i = 0; i < n; ++i)
    if (i % 6 == 4) b.target[static_cast<std::size_t>(i)] = -1;
  for (std::int64_t t = 0; t < rows; ++t) b.segment.push_back(static_cast<std::int32_t>(t / b.segment_length));
  return b;
}

inline std::vector<float> pack_head(const std::vector<float>& w, std::int64_t outputs, std::int64_t inputs) {
  std::vector<float> packed(static_cast<std::size_t>((outputs + 15) / 16 * inputs * 16), 0.0f);
  for (std::int64_t n = 0; n < outputs; ++n)
    for (std::int64_t k = 0; k < inputs; ++k) packed[(n / 16 * inputs + k) * 16 + n % 16] = w[n * inputs + k];
  return packed;
}
inline std::vector<float> unpack_head(const std::vector<float>& packed, std::int64_t outputs, std::int64_t inputs) {
  std::vector<float> w;
  for (std::int64_t n = 0; n < outputs; ++n)
    for (std::int64_t k = 0; k < inputs; ++k) w.push_back(packed[(n / 16 * inputs + k) * 16 + n % 16]);
  return w;
}

// A head and, in training, the gradient of its weight.
struct Head {
  HeadLoss loss;
  HeadWeight weight;
  void launch(KernelBench& b) const {
    b.launch(&KernelTable::head_loss, loss);
    if (loss.dx) b.launch(&KernelTable::head_weight, weight);
  }
};
inline Head head_of(KernelBench& b, const HeadBatch& batch, std::int64_t chunk_rows, bool learns, DType dtype = DType::f32) {
  HeadLoss op;
  op.logprob = b.junk(batch.rows, batch.targets);
  op.entropy = b.junk(batch.rows, 1);
  op.loss = b.junk(batch.rows, batch.targets);
  op.marks = b.zeros(batch.rows, batch.targets, DType::i32);
  op.flags = b.zeros(batch.rows, 1, DType::i32);
  op.x = b.floats(batch.x, batch.rows, batch.inputs);
  op.w.outputs = batch.vocabulary;
  op.w.inputs = batch.inputs;
  const std::vector<float> packed = pack_head(batch.w, batch.vocabulary, batch.inputs);
  op.w.data = b.floats(packed, 1, static_cast<std::int64_t>(packed.size()), dtype);
  op.target = b.ints(batch.target, batch.rows, batch.targets);
  op.objective.kind = batch.kind;
  const auto column = [&](const std::vector<float>& values) { return b.floats(values, batch.rows, batch.targets); };
  op.objective.weight = column(batch.weight);
  op.objective.advantage = column(batch.advantage);
  op.objective.old_logprob = column(batch.old_logprob);
  if (batch.parameters.anchor == RatioAnchor::proximal) op.objective.proximal = column(batch.proximal);
  if (batch.parameters.kl != KlEstimator::none) op.objective.reference = column(batch.reference);
  op.objective.parameters = batch.parameters;
  if (batch.parameters.entropy_coefficient != 0) op.entropy_slope = b.junk(batch.rows, 1);
  op.logits_chunk = b.junk(chunk_rows, batch.vocabulary);
  if (!learns) return {op, {}};
  op.dx = b.junk(batch.rows, batch.inputs);
  op.log_sum = b.junk(batch.rows, 1);
  op.slope = b.junk(batch.rows, batch.targets);
  return {op, HeadWeight{b.junk(op.w.panels(), batch.inputs * 16),
                         {},
                         true,
                         op.x,
                         op.w,
                         0,
                         false,
                         op.target,
                         op.log_sum,
                         op.slope,
                         b.ints(batch.segment, batch.rows),
                         op.entropy,
                         op.entropy_slope}};
}

// Rows of other distributions than the softmax of their logits (row_distribution.h).
struct HeadSupport {
  std::vector<float> temperature;
  std::vector<KeptTokens> kept;
};
// Covers all cases: with and without a temperature, kept by id and by rank, as ids and as bitmaps. Targets are always kept.
inline HeadSupport make_head_support(const HeadBatch& batch, std::uint64_t seed) {
  HeadSupport support;
  RandomSequence draws(seed, RandomStream::fuzz);
  constexpr float kTemperatures[] = {0.7f, 1.0f, 0.3f, 1.5f};
  for (std::int64_t t = 0; t < batch.rows; ++t) {
    support.temperature.push_back(kTemperatures[t % 4]);
    const std::int64_t form = t % 5, share = form == 1 || form == 2 ? 40 : 2;  // about one token in so many
    std::vector<std::int32_t> ids;
    for (std::int32_t v = 0; form > 0 && v < batch.vocabulary; ++v) {
      const auto targets = batch.target.begin() + t * batch.targets;
      if (draws.below(static_cast<std::uint32_t>(share)) == 0 || std::find(targets, targets + batch.targets, v) != targets + batch.targets) ids.push_back(v);
    }
    if (form > 0 && ids.empty()) ids.push_back(0);
    support.kept.push_back(form == 0 ? KeptTokens() : KeptTokens::of(form % 2 ? KeptTokens::Order::by_id : KeptTokens::Order::by_rank, ids, batch.vocabulary));
  }
  return support;
}
inline RowDistribution distribution_of(KernelBench& b, const HeadSupport& support, std::int64_t vocabulary) {
  RowDistribution d;
  const auto rows = static_cast<std::int64_t>(support.kept.size());
  if (!support.temperature.empty()) d.temperature = b.floats(support.temperature, rows, 1);
  std::vector<std::int32_t> kept, words{0};
  for (const KeptTokens& row : support.kept) {
    kept.insert(kept.end(), {row.cut() ? static_cast<std::int32_t>(row.order) : 0, static_cast<std::int32_t>(words.size()), row.count});
    words.insert(words.end(), row.words.begin(), row.words.end());
    d.most_kept = std::max<std::int64_t>(d.most_kept, row.count);
  }
  d.kept = b.ints(kept, rows, 3);
  d.kept_words = b.ints(words, 1, static_cast<std::int64_t>(words.size()));
  d.vocabulary = vocabulary;
  return d;
}

}  // namespace lockstep
