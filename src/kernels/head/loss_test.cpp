// Every loss of the head: values and gradients against a direct implementation in double and its finite differences, several targets a row,
// exact zeros, and the bits under instruction sets, threads and chunks.
#include <fmt/format.h>
#include <algorithm>
#include <functional>
#include <limits>

#include "kernels/head/head_test_tools.h"

namespace lockstep {
namespace {

double clamped(double x, double low, double high) { return x < low ? low : x > high ? high : x; }

// What a loss is, as the table of docs/losses.md says it. `lp` moves, `sg` is the same number without a gradient.
double plain_loss(const HeadBatch& b, std::size_t i, double lp, double sg) {
  const LossParameters& p = b.parameters;
  const double w = b.weight[i], a = b.advantage[i];
  if (b.kind == LossKind::cross_entropy) return -w * lp;
  const double q = b.old_logprob[i], anchor = p.anchor == RatioAnchor::sampler ? q : p.anchor == RatioAnchor::proximal ? b.proximal[i] : sg;
  const auto ratio_of = [&](double l) { return std::exp(clamped(l - anchor, p.log_ratio_low, p.log_ratio_high)); };
  const double r = ratio_of(lp), fixed = ratio_of(sg);
  double factor = 1;
  if (p.correction != Correction::none) {
    const double c = std::exp((p.anchor == RatioAnchor::proximal ? b.proximal[i] : sg) - q);
    const bool inside = c >= p.correction_low && c <= p.correction_high;
    if (p.correction == Correction::truncate) factor = std::min<double>(c, p.correction_high);
    if (p.correction == Correction::clip) factor = clamped(c, p.correction_low, p.correction_high);
    if (p.correction == Correction::icepop) factor = inside ? c : 0;
    if (p.correction == Correction::mask) factor = inside ? 1 : 0;
  }
  double loss = 0;
  switch (b.kind) {
    case LossKind::policy:
      loss = -std::min(r * a, clamped(r, p.clip_low, p.clip_high) * a);
      if (p.dual_clip > 0 && a < 0) loss = std::min(loss, -static_cast<double>(p.dual_clip) * a);
      break;
    case LossKind::importance_sampling:
      loss = -r * a;
      break;
    case LossKind::cispo:
      loss = -clamped(fixed, p.clip_low, p.clip_high) * a * lp;
      break;
    case LossKind::dro:
      loss = -(a * lp - 0.5 * p.beta * (lp - anchor) * (lp - anchor));
      break;
    case LossKind::reinforce:
      loss = -a * lp;
      break;
    case LossKind::dppo_tv:
    case LossKind::dppo_kl: {
      const double now = std::exp(sg), before = std::exp(anchor);
      const double distance =
          b.kind == LossKind::dppo_tv ? std::fabs(now - before) : before * (anchor - sg) + (1 - before) * std::log((1 - before) / (1 - now));
      const bool stop = (now - before) * a > 0 && distance > (a > 0 ? p.trust_high : p.trust_low);
      loss = stop ? 0 : -std::min<double>(fixed, p.ratio_cap) * a * lp;
      break;
    }
    case LossKind::sapo: {
      const double tau = a > 0 ? p.tau_positive : p.tau_negative;
      loss = -(4 / tau) / (1 + std::exp(-tau * (r - 1))) * a;
      break;
    }
    default:
      break;
  }
  loss *= factor;
  if (p.kl != KlEstimator::none) {
    const double f = b.reference[i], d = lp - f, k3 = std::exp(-d) + d - 1, fixed_k3 = std::exp(f - sg) + (sg - f) - 1;
    double kl = 0;
    if (p.kl == KlEstimator::k1) kl = d;
    if (p.kl == KlEstimator::k2) kl = 0.5 * d * d;
    if (p.kl == KlEstimator::k3) kl = k3;
    if (p.kl == KlEstimator::unbiased) kl = r * k3;
    if (p.kl == KlEstimator::k3_plus) kl = fixed_k3 + 0.5 * (d * d - (sg - f) * (sg - f));  // k3's value, k2's gradient
    loss += p.kl_coefficient * kl;
  }
  return w * loss;
}

struct PlainResult {
  std::vector<double> logprob, loss;
  double total = 0;
};
// `fixed`: the log-probabilities that stop-gradients see; null: these.
PlainResult plain(const HeadBatch& b, const std::vector<double>& x, const std::vector<double>& w, const std::vector<double>* fixed) {
  PlainResult r;
  for (std::int64_t t = 0; t < b.rows; ++t) {
    std::vector<double> z(static_cast<std::size_t>(b.vocabulary), 0.0);
    for (std::int64_t v = 0; v < b.vocabulary; ++v)
      for (std::int64_t k = 0; k < b.inputs; ++k) z[v] += x[t * b.inputs + k] * w[v * b.inputs + k];
    double sum = 0, entropy = 0;
    for (double e : z) sum += std::exp(e);
    const double lse = std::log(sum);
    for (double e : z) entropy -= std::exp(e - lse) * (e - lse);
    for (std::int64_t k = 0; k < b.targets; ++k) {
      const auto i = static_cast<std::size_t>(t * b.targets + k);
      const bool scored = b.target[i] >= 0;
      const double lp = scored ? z[static_cast<std::size_t>(b.target[i])] - lse : 0;
      double loss = scored ? plain_loss(b, i, lp, fixed ? (*fixed)[i] : lp) : 0;
      if (scored) loss -= b.parameters.entropy_coefficient * b.weight[i] * entropy;
      r.logprob.push_back(lp);
      r.loss.push_back(loss);
      r.total += loss;
    }
  }
  return r;
}

struct LossCase {
  const char* name;
  LossKind kind;
  std::function<void(LossParameters&)> set = [](LossParameters&) {};
  std::int64_t targets = 1;
};
std::vector<LossCase> head_loss_cases() {
  using P = LossParameters;
  return {
      {"cross_entropy of several targets", LossKind::cross_entropy, [](P&) {}, 3},
      {"importance_sampling", LossKind::importance_sampling},
      {"policy", LossKind::policy},
      {"policy of several targets", LossKind::policy, [](P&) {}, 2},
      {"policy, dual clip", LossKind::policy, [](P& p) { p.dual_clip = 1.5f; }},
      {"policy, entropy", LossKind::policy, [](P& p) { p.entropy_coefficient = 0.3f; }},
      {"policy, k1", LossKind::policy, [](P& p) { p.kl = KlEstimator::k1, p.kl_coefficient = 0.2f; }},
      {"policy, k2", LossKind::policy, [](P& p) { p.kl = KlEstimator::k2, p.kl_coefficient = 0.2f; }},
      {"policy, k3", LossKind::policy, [](P& p) { p.kl = KlEstimator::k3, p.kl_coefficient = 0.2f; }},
      {"policy, unbiased", LossKind::policy, [](P& p) { p.kl = KlEstimator::unbiased, p.kl_coefficient = 0.2f; }},
      {"policy, k3_plus", LossKind::policy, [](P& p) { p.kl = KlEstimator::k3_plus, p.kl_coefficient = 0.2f; }},
      {"policy, truncated", LossKind::policy, [](P& p) { p.anchor = RatioAnchor::proximal, p.correction = Correction::truncate, p.correction_high = 1.2f; }},
      {"policy, icepop", LossKind::policy,
       [](P& p) { p.anchor = RatioAnchor::proximal, p.correction = Correction::icepop, p.correction_low = 0.6f, p.correction_high = 1.8f; }},
      {"policy, clipped correction", LossKind::policy,
       [](P& p) { p.anchor = RatioAnchor::proximal, p.correction = Correction::clip, p.correction_low = 0.6f, p.correction_high = 1.8f; }},
      {"policy, mask", LossKind::policy, [](P& p) { p.correction = Correction::mask, p.correction_low = 0.6f, p.correction_high = 1.8f; }},
      {"cispo", LossKind::cispo},
      {"dro", LossKind::dro, [](P& p) { p.beta = 0.3f; }},
      {"reinforce", LossKind::reinforce},
      {"reinforce, truncated, current", LossKind::reinforce,
       [](P& p) { p.anchor = RatioAnchor::current, p.correction = Correction::truncate, p.correction_high = 1.2f; }},
      {"dppo_tv", LossKind::dppo_tv, [](P& p) { p.trust_low = 0.02f, p.trust_high = 0.01f; }},
      {"dppo_kl", LossKind::dppo_kl, [](P& p) { p.trust_low = 0.005f, p.trust_high = 0.01f, p.ratio_cap = 1.1f; }},
      {"sapo", LossKind::sapo},
  };
}

HeadBatch batch_of(const LossCase& c, std::int64_t rows, std::int64_t inputs, std::int64_t vocabulary, std::uint64_t seed) {
  HeadBatch batch = make_head_batch(rows, inputs, vocabulary, c.kind, seed, c.targets);
  c.set(batch.parameters);
  if (batch.weight.size() > 8) batch.weight[3] = -0.7f, batch.weight[7] = 0;  // weights may be negative, or nothing
  return batch;
}

TEST(Losses, ValuesAndGradientsMatchDouble) {
  for (const LossCase& c : head_loss_cases()) {
    SCOPED_TRACE(c.name);
    const HeadBatch batch = batch_of(c, 18, 6, 19, 31);
    KernelBench b;
    const Head head = head_of(b, batch, 5, true);
    head.launch(b);
    const auto x = widened(batch.x), w = widened(batch.w);
    const PlainResult want = plain(batch, x, w, nullptr);
    expect_close(b.read(head.loss.logprob), want.logprob, 1e-5, "logprob");
    expect_close(b.read(head.loss.loss), want.loss, 2e-5, "loss");
    const auto dx = finite_difference([&](const std::vector<double>& at) { return plain(batch, at, w, &want.logprob).total; }, x);
    const auto dw = finite_difference([&](const std::vector<double>& at) { return plain(batch, x, at, &want.logprob).total; }, w);
    expect_close(b.read(head.loss.dx), dx, 3e-5, "dx");
    expect_close(unpack_head(b.read(head.weight.gradient), 19, 6), dw, 3e-5, "dw");
  }
}

// Beside the values: a case that never took its other branch would prove little.
TEST(Losses, EveryBranchIsTaken) {
  std::int32_t seen = 0;
  for (const LossCase& c : head_loss_cases()) {
    KernelBench b;
    HeadBatch batch = batch_of(c, 60, 6, 19, 32);
    batch.parameters.log_ratio_low = -0.9f, batch.parameters.log_ratio_high = 0.9f;
    const Head head = head_of(b, batch, 60, false);
    head.launch(b);
    for (const std::int32_t mark : b.read_ints(head.loss.marks)) seen |= mark;
  }
  EXPECT_EQ(seen, 127);
}

// A weight or an advantage of 0 is a loss and a gradient of exactly 0, whatever the ratio; so is a factor of 0.
TEST(Losses, NothingIsExactlyNothing) {
  for (const LossCase& c : head_loss_cases())
    for (const bool zero_weight : {true, false}) {
      SCOPED_TRACE(fmt::format("{}, {} of 0", c.name, zero_weight ? "weight" : "advantage"));
      HeadBatch batch = batch_of(c, 12, 8, 40, 33);
      if (!zero_weight && (batch.kind == LossKind::cross_entropy || batch.parameters.kl != KlEstimator::none || batch.parameters.entropy_coefficient != 0))
        continue;
      batch.parameters.log_ratio_low = -std::numeric_limits<float>::infinity();
      batch.parameters.log_ratio_high = std::numeric_limits<float>::infinity();
      (zero_weight ? batch.weight : batch.advantage).assign(12 * static_cast<std::size_t>(c.targets), 0.0f);
      for (std::size_t i = 0; i < batch.old_logprob.size(); ++i) batch.old_logprob[i] = i % 3 == 0 ? -500.0f : i % 3 == 1 ? 0.0f : -1e30f;
      KernelBench b;
      const Head head = head_of(b, batch, 12, true);
      head.launch(b);
      for (const View& v : {head.loss.loss, head.loss.dx, head.weight.gradient})
        for (const float value : b.read(v)) ASSERT_EQ(value, 0.0f);
      for (const float value : b.read(head.loss.loss)) EXPECT_EQ(float_bits(value), 0u);
    }
}

TEST(Losses, TheSameEverywhereAndInAnyChunks) {
  for (const LossCase& c : head_loss_cases()) {
    SCOPED_TRACE(c.name);
    const HeadBatch batch = batch_of(c, 21, 33, 100, 34);
    expect_same_everywhere([&](KernelBench& b) {
      std::vector<std::vector<std::uint64_t>> first;
      for (const std::int64_t chunk : {std::int64_t{24}, std::int64_t{5}}) {
        const Head head = head_of(b, batch, chunk, true);
        head.launch(b);
        std::vector<std::vector<std::uint64_t>> words;
        for (const View& v : {head.loss.logprob, head.loss.loss, head.loss.slope, head.loss.dx, head.weight.gradient}) {
          words.push_back(words_of(b.read(v)));
          b.record(v);
        }
        if (first.empty()) first = words;
        EXPECT_EQ(words, first) << "chunk " << chunk;
      }
    });
  }
}

// Places for targets that are not scored change no bit; a second target does.
TEST(Losses, UnusedTargetsChangeNoBit) {
  for (const LossKind kind : {LossKind::cross_entropy, LossKind::policy}) {
    const HeadBatch narrow = make_head_batch(15, 20, 50, kind, 35);
    HeadBatch wide = narrow;
    wide.targets = 3;
    const auto spread = [](const auto& values, auto fill) {
      std::decay_t<decltype(values)> out;
      for (std::size_t i = 0; i < values.size(); ++i)
        for (std::size_t k = 0; k < 3; ++k) out.push_back(k == i % 3 ? values[i] : fill);
      return out;
    };
    for (auto member : {&HeadBatch::weight, &HeadBatch::advantage, &HeadBatch::old_logprob}) wide.*member = spread(narrow.*member, 0.5f);
    wide.target = spread(narrow.target, -1);
    KernelBench b;
    const Head one = head_of(b, narrow, 15, true), three = head_of(b, wide, 4, true);
    one.launch(b);
    three.launch(b);
    for (const auto& [got, want] :
         {std::pair{three.loss.dx, one.loss.dx}, {three.loss.entropy, one.loss.entropy}, {three.weight.gradient, one.weight.gradient}})
      expect_same_words(words_of(b.read(got)), words_of(b.read(want)), "with unused targets");
    HeadBatch control = wide;
    control.target[1] = 7;
    const Head two = head_of(b, control, 15, true);
    two.launch(b);
    EXPECT_NE(words_of(b.read(two.loss.dx)), words_of(b.read(one.loss.dx)));
  }
}

// A whole distribution as targets is the cross-entropy against it; the weights of a row that cancel are still a gradient.
TEST(Losses, TargetsOfTheWholeVocabulary) {
  HeadBatch batch = make_head_batch(7, 5, 16, LossKind::cross_entropy, 36, 16);
  for (std::size_t i = 0; i < batch.target.size(); ++i) batch.target[i] = static_cast<std::int32_t>(i % 16);
  for (std::size_t i = 0; i < 16; ++i) batch.weight[i] = i == 2 ? 1.0f : i == 9 ? -1.0f : 0.0f;
  KernelBench b;
  const Head head = head_of(b, batch, 7, true);
  head.launch(b);
  const auto x = widened(batch.x), w = widened(batch.w);
  const auto dx = finite_difference([&](const std::vector<double>& at) { return plain(batch, at, w, nullptr).total; }, x);
  expect_close(b.read(head.loss.dx), dx, 1e-5, "dx");
  double first = 0;
  for (std::size_t k = 0; k < 5; ++k) first += std::fabs(b.read(head.loss.dx)[k]);
  EXPECT_GT(first, 0.01);
}

}  // namespace
}  // namespace lockstep
