// Rows under a temperature and over kept tokens: the bits of the sampler's number, values and gradients against double, the same everywhere.
#include "kernels/head/row_distribution.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "kernels/head/head_test_tools.h"

namespace lockstep {
namespace {

// Draws a token of every row of `logits` and tells what it was drawn from.
struct Drawn {
  std::vector<std::int32_t> token;
  std::vector<float> sampling_logprob;
  HeadSupport support;
};
struct Cut {
  float temperature = 1, top_p = 1, min_p = 0;
  std::int32_t top_k = 0;
  bool mask = false;
};
Drawn draw(KernelBench& b, const View& logits, const std::vector<Cut>& cuts) {
  const std::int64_t n = logits.rows, vocabulary = logits.cols, width = (vocabulary + 31) / 32;
  std::vector<float> temperature, top_p, min_p;
  std::vector<std::int32_t> top_k, seed, index, mask_row, masks;
  for (std::int64_t t = 0; t < n; ++t) {
    const Cut& cut = cuts[static_cast<std::size_t>(t)];
    temperature.push_back(cut.temperature), top_p.push_back(cut.top_p), min_p.push_back(cut.min_p), top_k.push_back(cut.top_k);
    seed.push_back(17), seed.push_back(0), index.push_back(static_cast<std::int32_t>(t));
    mask_row.push_back(cut.mask ? static_cast<std::int32_t>(std::ssize(masks) / width) : -1);
    for (std::int64_t w = 0; cut.mask && w < width; ++w) masks.push_back(static_cast<std::int32_t>(0x5a6d31c7u * static_cast<std::uint32_t>(w + t + 1)));
  }
  masks.resize(masks.size() + static_cast<std::size_t>(width), 0);
  Sample op;
  op.token = b.zeros(n, 1, DType::i32);
  op.raw_logprob = b.junk(n, 1), op.sampling_logprob = b.junk(n, 1);
  op.flags = b.zeros(n, 1, DType::i32);
  op.logits = logits;
  op.temperature = b.floats(temperature, n, 1), op.top_p = b.floats(top_p, n, 1), op.min_p = b.floats(min_p, n, 1);
  op.top_k = b.ints(top_k, n), op.seed = b.ints(seed, n, 2);
  op.mask = b.ints(masks, std::ssize(masks) / width, width), op.mask_row = b.ints(mask_row, n);
  op.sample = op.position = b.ints(index, n);
  op.kept = b.zeros(n, 2 + width, DType::i32);
  std::vector<std::int32_t> kept_row(index.rbegin(), index.rend());  // told in another order
  op.kept_row = b.ints(kept_row, n);
  b.launch(&KernelTable::sample, op);
  for (const View& v : {op.token, op.raw_logprob, op.sampling_logprob, op.flags}) b.record(v);
  Drawn drawn{b.read_ints(op.token), b.read(op.sampling_logprob), {temperature, {}}};
  const std::vector<std::int32_t> words = b.read_ints(op.kept);
  for (std::int64_t t = 0; t < n; ++t) {
    const auto at = words.begin() + kept_row[static_cast<std::size_t>(t)] * (2 + width);
    KeptTokens kept;
    if (at[0] != 0) kept = {static_cast<KeptTokens::Order>(at[0]), at[1], {at + 2, at + 2 + std::min<std::int64_t>(at[1], width)}};
    EXPECT_EQ(kept.fault(vocabulary), "");
    EXPECT_TRUE(kept.contains(drawn.token[static_cast<std::size_t>(t)])) << "row " << t;
    drawn.support.kept.push_back(kept);
  }
  return drawn;
}

std::vector<Cut> all_cuts() {
  std::vector<Cut> cuts;
  for (const float temperature : {0.3f, 0.7f, 1.0f, 1.5f})
    for (const std::int32_t top_k : {0, 3, 40})
      for (const float top_p : {1.0f, 0.8f})
        for (const float min_p : {0.0f, 0.05f})
          for (const bool mask : {false, true}) cuts.push_back({temperature, top_p, min_p, top_k, mask});
  return cuts;
}

View all_logits(KernelBench& b, const HeadLoss& op) {
  const View logits = b.junk(op.x.rows, op.w.outputs);
  std::vector<std::int32_t> index;
  for (std::int64_t t = 0; t < op.x.rows; ++t) index.push_back(static_cast<std::int32_t>(t));
  b.launch(&KernelTable::head_logits, HeadLogits{logits, op.x, b.ints(index, op.x.rows), op.w});
  return logits;
}

TEST(RowDistribution, TheTrainersNumberHasTheBitsOfTheSamplers) {
  const std::vector<Cut> cuts = all_cuts();
  const auto rows = static_cast<std::int64_t>(cuts.size());
  for (const std::int64_t vocabulary : {20, 300, 520}) {
    HeadBatch batch = make_head_batch(rows, 40, vocabulary, LossKind::policy, 3);
    expect_same_everywhere([&](KernelBench& b) {
      const Drawn drawn = draw(b, all_logits(b, head_of(b, batch, 7, false).loss), cuts);
      HeadBatch trained = batch;
      trained.target = drawn.token;
      Head head = head_of(b, trained, 7, true);
      head.loss.distribution = head.weight.distribution = distribution_of(b, drawn.support, vocabulary);
      head.launch(b);
      b.record(head.loss.logprob);
      expect_same_words(words_of(b.read(head.loss.logprob)), words_of(drawn.sampling_logprob), "log-probabilities");
      // The control: without the kept sets every row that was cut has another number, and without the temperature every tempered one.
      HeadSupport uncut = drawn.support;
      for (KeptTokens& kept : uncut.kept) kept = {};
      Head plain = head_of(b, trained, 7, false);
      plain.loss.distribution = distribution_of(b, uncut, vocabulary);
      plain.launch(b);
      const std::vector<float> without = b.read(plain.loss.logprob);
      int ids = 0, bitmaps = 0, by_id = 0, by_rank = 0, all = 0, same = 0;  // same: where what was cut was too small to be seen
      for (std::size_t t = 0; t < cuts.size(); ++t) {
        const KeptTokens& kept = drawn.support.kept[t];
        if (!kept.cut()) ++all;
        else
          ++(kept.is_bitmap() ? bitmaps : ids), ++(kept.order == KeptTokens::Order::by_id ? by_id : by_rank), same += without[t] == drawn.sampling_logprob[t];
      }
      for (const int count : {ids, bitmaps, by_id, by_rank, all}) EXPECT_GT(count, 3);
      EXPECT_LT(same * 4, ids + bitmaps);
    });
  }
}

// The definition in double; the total loss.
double total_loss(const HeadBatch& b, const HeadSupport& support, const std::vector<double>& x, const std::vector<double>& w, std::vector<double>* logprobs,
                  std::vector<double>* entropies) {
  double total = 0;
  for (std::int64_t t = 0; t < b.rows; ++t) {
    const auto at = static_cast<std::size_t>(t);
    double logprob = 0, entropy = 0;
    if (b.target[at] >= 0) {
      std::vector<double> z;
      double chosen = 0;
      for (std::int64_t v = 0; v < b.vocabulary; ++v) {
        double logit = 0;
        for (std::int64_t k = 0; k < b.inputs; ++k) logit += x[static_cast<std::size_t>(t * b.inputs + k)] * w[static_cast<std::size_t>(v * b.inputs + k)];
        logit /= static_cast<double>(support.temperature[at]);
        if (v == b.target[at]) chosen = logit;
        if (support.kept[at].contains(static_cast<std::int32_t>(v))) z.push_back(logit);
      }
      const double m = *std::max_element(z.begin(), z.end());
      double sum = 0;
      for (const double e : z) sum += std::exp(e - m);
      const double lse = m + std::log(sum);
      logprob = chosen - lse;
      entropy = lse;
      for (const double e : z) entropy -= std::exp(e - lse) * e;
      const double weight = static_cast<double>(b.weight[at]);
      total -= weight * logprob + static_cast<double>(b.parameters.entropy_coefficient) * weight * entropy;
    }
    if (logprobs) logprobs->push_back(logprob), entropies->push_back(entropy);
  }
  return total;
}

TEST(RowDistribution, ValuesAndGradientsMatchDouble) {
  for (const float entropy_coefficient : {0.0f, 0.2f}) {
    HeadBatch batch = make_head_batch(20, 6, 45, entropy_coefficient == 0 ? LossKind::cross_entropy : LossKind::reinforce, 7);
    batch.parameters.entropy_coefficient = entropy_coefficient;
    batch.parameters.anchor = RatioAnchor::current;
    batch.advantage.assign(batch.advantage.size(), 1.0f);  // reinforce is then cross-entropy with an entropy bonus
    const HeadSupport support = make_head_support(batch, 8);
    KernelBench b;
    Head head = head_of(b, batch, 5, true);
    head.loss.distribution = head.weight.distribution = distribution_of(b, support, 45);
    head.launch(b);
    const auto x = widened(batch.x), w = widened(batch.w);
    std::vector<double> logprobs, entropies;
    total_loss(batch, support, x, w, &logprobs, &entropies);
    expect_close(b.read(head.loss.logprob), logprobs, 1e-5, "logprob");
    expect_close(b.read(head.loss.entropy), entropies, 1e-5, "entropy");
    const auto of = [&](const std::vector<double>& xs, const std::vector<double>& ws) { return total_loss(batch, support, xs, ws, nullptr, nullptr); };
    expect_close(b.read(head.loss.dx), finite_difference([&](const std::vector<double>& v) { return of(v, w); }, x), 2e-5, "dx");
    expect_close(unpack_head(b.read(head.weight.gradient), 45, 6), finite_difference([&](const std::vector<double>& v) { return of(x, v); }, w), 2e-5, "dw");
  }
}

TEST(RowDistribution, IsTheSameEverywhere) {
  for (const std::int64_t targets : {1, 3})
    for (const std::int64_t vocabulary : {15, 100, 300}) {
      HeadBatch batch = make_head_batch(23, 20, vocabulary, LossKind::policy, 11, targets);
      if (targets == 1) batch.parameters.entropy_coefficient = 0.1f;
      const HeadSupport support = make_head_support(batch, 12);
      expect_same_everywhere([&](KernelBench& b) {
        std::vector<float> by_fours;
        for (const std::int64_t chunk : {4, 23}) {
          Head head = head_of(b, batch, chunk, true);
          head.loss.distribution = head.weight.distribution = distribution_of(b, support, vocabulary);
          head.launch(b);
          const HeadLoss& op = head.loss;
          for (const View& v : {op.logprob, op.entropy, op.loss, op.marks, op.flags, op.dx, op.log_sum, op.slope, head.weight.gradient}) b.record(v);
          if (chunk == 4) by_fours = b.read(op.dx);
          else expect_same_words(words_of(b.read(op.dx)), words_of(by_fours), "dx of other chunks");
          EXPECT_EQ(b.read_ints(op.flags), std::vector<std::int32_t>(23, 0));
        }
      });
    }
}

// A temperature of 1, and a set that keeps every token in the order of ids, change no bit of anything.
TEST(RowDistribution, NothingCutIsThePlainHead) {
  const HeadBatch batch = make_head_batch(13, 20, 300, LossKind::policy, 21);
  KernelBench b;
  const Head plain = head_of(b, batch, 5, true);
  plain.launch(b);
  HeadSupport support{std::vector<float>(13, 1.0f), {}};
  std::vector<std::int32_t> every;
  for (std::int32_t v = 0; v < 300; ++v) every.push_back(v);
  for (std::int64_t t = 0; t < 13; ++t) support.kept.push_back(t % 2 ? KeptTokens() : KeptTokens::of(KeptTokens::Order::by_id, every, 300));
  Head same = head_of(b, batch, 5, true);
  same.loss.distribution = same.weight.distribution = distribution_of(b, support, 300);
  same.launch(b);
  for (const auto& [got, want] : {std::pair(same.loss.logprob, plain.loss.logprob),
                                  {same.loss.entropy, plain.loss.entropy},
                                  {same.loss.dx, plain.loss.dx},
                                  {same.weight.gradient, plain.weight.gradient}})
    expect_same_words(words_of(b.read(got)), words_of(b.read(want)), "the plain head");
}

// A NaN among the kept logits flags its row; one that was cut does not.
TEST(RowDistribution, ANaNAmongTheKeptIsFlagged) {
  HeadBatch batch = make_head_batch(2, 8, 40, LossKind::cross_entropy, 31);
  batch.target = {1, 1};
  for (std::int64_t k = 0; k < 8; ++k) batch.w[static_cast<std::size_t>(3 * 8 + k)] = std::nanf("");
  for (const KeptTokens::Order order : {KeptTokens::Order::by_id, KeptTokens::Order::by_rank}) {
    const HeadSupport support{{1, 1}, {KeptTokens::of(order, std::vector<std::int32_t>{1, 2}, 40), KeptTokens::of(order, std::vector<std::int32_t>{1, 3}, 40)}};
    expect_same_everywhere([&](KernelBench& b) {
      Head head = head_of(b, batch, 5, false);
      head.loss.distribution = distribution_of(b, support, 40);
      head.launch(b);
      EXPECT_EQ(b.read_ints(head.loss.flags), (std::vector<std::int32_t>{0, 4}));
      EXPECT_TRUE(std::isfinite(b.read(head.loss.logprob)[0]));
      EXPECT_TRUE(std::isnan(b.read(head.loss.logprob)[1]));
      b.record(head.loss.flags);
    });
  }
}

}  // namespace
}  // namespace lockstep
