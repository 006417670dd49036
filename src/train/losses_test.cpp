// Losses by name, their options and inputs, averaging, ratios of sequences, metrics; and that no bit of a step with them depends on
// micro-batches, threads, instruction sets, pieces or ranks.
#include "train/losses.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "base/error.h"
#include "train/loss_columns.h"
#include "train/train_test_tools.h"
#include "train/trainer.h"

namespace lockstep {
namespace {

std::string loss_refusal(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::invalid_argument) << e.what();
    return e.what();
  }
  return "accepted";
}

// Everything that any loss may want; prompts are masked, a sequence is masked whole.
std::vector<TrainSequence> loss_data(std::int64_t vocabulary, std::int64_t targets_per_row = 1, std::uint64_t seed = 5) {
  RandomSequence draws(seed, RandomStream::fuzz);
  std::vector<TrainSequence> data;
  for (const int rows : {9, 40, 3, 21}) {
    TrainSequence d;
    d.targets_per_row = targets_per_row;
    for (int i = 0; i < rows; ++i) {
      d.tokens.push_back(static_cast<std::int32_t>(draws.below(static_cast<std::uint32_t>(vocabulary))));
      for (std::int64_t k = 0; k < targets_per_row; ++k) {
        d.targets.push_back(i < 2 ? -1 : static_cast<std::int32_t>(draws.below(static_cast<std::uint32_t>(vocabulary))));
        d.weights.push_back(rows == 3 ? 0.0f : static_cast<float>(draws.uniform()));
        const auto near = [&] { return static_cast<float>(-std::log(static_cast<double>(vocabulary)) + draws.uniform() - 0.5); };
        d.advantages.push_back(static_cast<float>(draws.uniform() * 4 - 2));
        d.old_logprobs.push_back(near());
        d.proximal_logprobs.push_back(near());
        d.reference_logprobs.push_back(near());
      }
    }
    data.push_back(std::move(d));
  }
  return data;
}

struct LossStep {
  ForwardBackwardResult result;
  std::uint64_t gradients = 0;
};
struct LossPlace {
  TrainerOptions options;
  BackendKind backend = BackendKind::cpu;
  int threads = 1;
  std::optional<InstructionSet> isa;
};
LossStep loss_step(const TrainBench& bench, const std::vector<TrainSequence>& data, const LossOptions& loss, const LossPlace& place = {},
                   const std::vector<std::vector<std::size_t>>& pieces = {}) {
  Runtime runtime({.kind = place.backend, .isa = place.isa, .threads = place.threads}, bench.model, profile_by_name("cpu-f32"), 600);
  Trainer trainer(runtime, bench.masters, place.options);
  LossStep step;
  if (pieces.empty()) {
    step.result = trainer.forward_backward(data, loss);
  } else {
    LossOptions known = loss;
    known.normaliser = loss_normaliser(data, loss);
    trainer.begin_batch({.sequences = data.size()}, known);
    for (const auto& places : pieces) {
      std::vector<TrainSequence> piece;
      for (const std::size_t at : places) piece.push_back(data[at]);
      trainer.add(places, piece);
    }
    step.result = trainer.finish_batch();
  }
  step.gradients = images_hash(bench.model->manifest(), trainer.gradient_images());
  return step;
}
std::string step_difference(const LossStep& got, const LossStep& want) {
  if (got.result.logprobs != want.result.logprobs) return "log-probabilities";
  if (got.result.entropies != want.result.entropies) return "entropies";
  if (got.result.losses != want.result.losses) return "losses";
  if (got.result.marks != want.result.marks) return "marks";
  if (got.result.loss != want.result.loss) return "loss";
  if (got.result.scored != want.result.scored) return "targets";
  for (std::size_t i = 0; i < want.result.metrics.size(); ++i)
    if (got.result.metrics[i] != want.result.metrics[i]) return want.result.metrics[i].first;
  return got.gradients == want.gradients ? "" : "gradients";
}
double metric(const ForwardBackwardResult& result, const std::string& name) {
  for (const auto& [key, value] : result.metrics)
    if (key == name) return value;
  ADD_FAILURE() << "no metric " << name;
  return 0;
}

const LossConfig kEverything = {{"kl", "k3"},
                                {"kl_coefficient", 0.1},
                                {"entropy_coefficient", 0.05},
                                {"anchor", "proximal"},
                                {"correction", "icepop"},
                                {"correction_low", "0.7"},
                                {"correction_high", 1.4}};
std::vector<std::pair<LossOptions, std::int64_t>> step_losses() {
  LossConfig sequences = kEverything;
  sequences.emplace_back("correction_level", "geometric");
  sequences.emplace_back("averaging", "sequence_token_mean");
  return {{loss_by_name("dapo", kEverything), 1},
          {loss_by_name("gspo", sequences), 1},
          {loss_by_name("cross_entropy"), 3},
          {loss_by_name("cispo", {{"ratio_level", "sequence_product"}}), 2}};
}

TEST(LossNames, EveryLossHasAllThatIsSaidOfIt) {
  EXPECT_EQ(loss_names(),
            (std::vector<std::string>{"cross_entropy", "importance_sampling", "ppo", "grpo", "dapo", "gspo", "cispo", "dro", "reinforce", "dppo", "sapo"}));
  for (const std::string& name : loss_names()) {
    const LossOptions loss = loss_by_name(name);
    EXPECT_EQ(loss.averaging, LossAveraging::sum) << name;
    EXPECT_EQ(loss.ratio_level != RatioLevel::token, name == "gspo");
  }
  EXPECT_EQ(loss_by_name("ppo").parameters.clip_low, 0.8f);
  EXPECT_EQ(loss_by_name("dapo").parameters.clip_high, 1.28f);
  EXPECT_NE(loss_refusal([] { loss_by_name("pppo"); }).find("did you mean 'ppo'"), std::string::npos);
  EXPECT_NE(loss_refusal([] { loss_by_name("ppo", {{"clip_low_treshold", 0.8}}); }).find("did you mean 'clip_low_threshold'"), std::string::npos);
  EXPECT_NE(loss_refusal([] { loss_by_name("cross_entropy", {{"beta", 0.8}}); }).find("allowed are averaging, length_norm, normaliser"), std::string::npos);
  EXPECT_NE(loss_refusal([] { loss_by_name("dro", {{"beta", "much"}}); }).find("it is 'much', allowed is a number from 0"), std::string::npos);
  EXPECT_NE(loss_refusal([] { loss_by_name("dro", {{"beta", std::numeric_limits<double>::quiet_NaN()}}); }).find("it is nan"), std::string::npos);
  EXPECT_NE(loss_refusal([] { loss_by_name("ppo", {{"kl", "k4"}}); }).find("allowed is k1, k2, k3, unbiased, k3_plus"), std::string::npos);
  const auto meant = [](const std::string& option, const std::string& given, const std::string& word) {
    LossConfig config;
    config.emplace_back(option, given);
    const std::string told = loss_refusal([&] { loss_by_name("ppo", config); });
    EXPECT_NE(told.find("did you mean '" + word + "'"), std::string::npos) << told;
  };
  meant("averaging", "token_meen", "token_mean");
  meant("ratio_level", "sequense", "sequence");
  meant("anchor", "proximate", "proximal");
  meant("correction", "icepopp", "icepop");
  EXPECT_EQ(loss_refusal([] { loss_by_name("ppo", {{"averaging", 1.0}}); }).find("did you mean"), std::string::npos);  // no word
  EXPECT_NE(loss_refusal([] { loss_by_name("ppo", {{"clip_low_threshold", 1.3}}); }).find("at most clip_high_threshold"), std::string::npos);
  EXPECT_NE(loss_refusal([] { loss_by_name("ppo", {{"correction", "tis"}}); }).find("count it twice"), std::string::npos);
  EXPECT_NE(loss_refusal([] { loss_by_name("ppo", {{"averaging", "sequence_token_sum_norm"}}); }).find("length_norm is missing"), std::string::npos);
}

// An option that nothing follows from would be a lie: each changes what a step gives.
TEST(LossNames, EveryOptionHasAnEffect) {
  const TrainBench bench(kLlama);
  const std::vector<TrainSequence> data = loss_data(bench.model->facts().vocabulary);
  const std::map<std::string, std::vector<LossConfig>> tries = {
      {"averaging", {{{"averaging", "token_mean"}}}},
      {"length_norm", {{{"averaging", "sequence_token_sum_norm"}, {"length_norm", 7.0}}, {{"averaging", "sequence_token_sum_norm"}, {"length_norm", 8.0}}}},
      {"normaliser", {{{"normaliser", 3.0}}}},
      {"clip_low_threshold", {{{"clip_low_threshold", 0.95}}}},
      {"clip_high_threshold", {{{"clip_high_threshold", 1.02}}}},
      {"ratio_log_cap", {{{"ratio_log_cap", 0.1}}}},
      {"seq_ratio_log_cap", {{{"seq_ratio_log_cap", 0.001}}}},
      {"ratio_level", {{{"ratio_level", "sequence"}}}},
      {"eps_clip_c",
       {{{"eps_clip_c", 1.01}, {"clip_high_threshold", 1.0}, {"clip_low_threshold", 1.0}}, {{"clip_high_threshold", 1.0}, {"clip_low_threshold", 1.0}}}},
      {"beta", {{{"beta", 0.7}}}},
      {"gate_zero_advantage", {{{"gate_zero_advantage", false}}}},
      {"trust_low_threshold", {{{"trust_low_threshold", 0.0}}}},
      {"trust_high_threshold", {{{"trust_high_threshold", 0.0}}}},
      {"trust_distance",
       {{{"trust_distance", "kl"}, {"trust_low_threshold", 0.0005}, {"trust_high_threshold", 0.0005}},
        {{"trust_low_threshold", 0.0005}, {"trust_high_threshold", 0.0005}}}},
      {"ratio_cap", {{{"ratio_cap", 0.9}}}},
      {"tau_positive", {{{"tau_positive", 2.0}}}},
      {"tau_negative", {{{"tau_negative", 2.0}}}},
      {"anchor", {{{"anchor", "proximal"}}}},
      {"kl", {{{"kl", "k1"}, {"kl_coefficient", 0.1}}, {{"kl_coefficient", 0.1}}}},
      {"kl_coefficient", {{{"kl_coefficient", 0.1}}}},
      {"entropy_coefficient", {{{"entropy_coefficient", 0.1}}}},
      {"correction", {{{"correction", "mask"}, {"correction_low", 0.9}, {"correction_high", 1.1}}}},
      {"correction_low", {{{"correction", "mask"}, {"correction_low", 0.9}}, {{"correction", "mask"}}}},
      {"correction_high", {{{"correction", "mask"}, {"correction_high", 1.0}}, {{"correction", "mask"}}}},
      {"correction_level",
       {{{"correction", "mask"}, {"correction_high", 1.0}, {"correction_level", "sequence"}}, {{"correction", "mask"}, {"correction_high", 1.0}}}}};
  const std::map<std::string, std::string> loss_of = {
      {"seq_ratio_log_cap", "gspo"}, {"beta", "dro"},       {"gate_zero_advantage", "dro"}, {"trust_low_threshold", "dppo"}, {"trust_high_threshold", "dppo"},
      {"trust_distance", "dppo"},    {"ratio_cap", "dppo"}, {"tau_positive", "sapo"},       {"tau_negative", "sapo"}};
  std::set<std::string> known;
  for (const LossRow& row : loss_rows())
    for (const std::string& option : loss_option_names(row)) known.insert(option);
  for (const std::string& option : known) {
    SCOPED_TRACE(option);
    ASSERT_TRUE(tries.contains(option)) << "an option without a test";
    const std::string loss = loss_of.contains(option) ? loss_of.at(option) : "ppo";
    std::vector<TrainSequence> fed = data;
    if (option == "gate_zero_advantage") fed[1].advantages[5] = 0;
    const auto& configs = tries.at(option);
    const LossStep with = loss_step(bench, fed, loss_by_name(loss, configs[0]));
    const LossStep without = loss_step(bench, fed, loss_by_name(loss, configs.size() > 1 ? configs[1] : LossConfig()));
    EXPECT_NE(with.gradients, without.gradients);
    EXPECT_NE(with.result.loss, without.result.loss);
  }
}

TEST(LossInputs, EveryFaultNamesItsPlace) {
  const TrainBench bench(kLlama);
  Runtime runtime({.threads = 1}, bench.model, profile_by_name("cpu-f32"), 600);
  Trainer trainer(runtime, bench.masters, {});
  const auto refused = [&](const std::string& name, const LossConfig& config, const std::function<void(TrainSequence&)>& spoil) {
    std::vector<TrainSequence> data = loss_data(bench.model->facts().vocabulary);
    spoil(data[1]);
    return loss_refusal([&] { trainer.forward_backward(data, loss_by_name(name, config)); });
  };
  const auto contains = [](const std::string& text, const std::string& part) { EXPECT_NE(text.find(part), std::string::npos) << text; };
  contains(refused("ppo", {}, [](auto& d) { d.advantages.clear(); }), "sequence 1: 40 tokens, 0 advantages");
  contains(refused("ppo", {}, [](auto& d) { d.old_logprobs.pop_back(); }), "39 old log-probabilities");
  contains(refused("ppo", {}, [](auto& d) { d.advantages[3] = std::numeric_limits<float>::infinity(); }), "advantage 3 is not finite");
  contains(refused("ppo", {}, [](auto& d) { d.clip_low = {0.5f}; }), "40 tokens and 1 values of clip_low_threshold");
  contains(refused("ppo", {{"kl_coefficient", 0.1}}, [](auto& d) { d.reference_logprobs.clear(); }), "since the loss has a KL term");
  contains(refused("ppo", {{"anchor", "proximal"}}, [](auto& d) { d.proximal_logprobs.clear(); }), "since the anchor is proximal");
  contains(refused("cross_entropy", {}, [](auto& d) { d.targets_per_row = 0; }), "targets_per_row is 0");
  contains(refused("cross_entropy", {}, [](auto& d) { d.targets_per_row = 2; }), "allowed are equal numbers of 2 a token");
  contains(refused("cross_entropy", {{"averaging", "token_mean"}}, [](auto& d) { d.weights.assign(40, -9.0f); }), "averaging token_mean divides by");
  contains(refused("cross_entropy", {{"averaging", "sequence_token_mean"}}, [](auto& d) { d.weights.assign(40, -1.0f); }), "allowed are sums above 0");
  EXPECT_EQ(refused("reinforce", {}, [](auto& d) { d.old_logprobs.clear(); }), "accepted");
  trainer.optim_step({.max_norm = 1});
}

TEST(LossAverages, AreThoseOfTheDefinition) {
  const TrainBench bench(kLlama);
  std::vector<TrainSequence> data = loss_data(bench.model->facts().vocabulary);
  const LossStep sums = loss_step(bench, data, loss_by_name("ppo"));
  double tokens = 0;
  std::vector<double> of_sequence, weights;
  for (std::size_t s = 0; s < data.size(); ++s) {
    of_sequence.push_back(0);
    weights.push_back(0);
    for (std::size_t i = 0; i < data[s].targets.size(); ++i) {
      if (data[s].targets[i] < 0) continue;
      weights[s] += data[s].weights[i];
      of_sequence[s] += sums.result.losses[s][i];
    }
    tokens += weights[s];
  }
  const double all = of_sequence[0] + of_sequence[1] + of_sequence[3];
  EXPECT_NEAR(sums.result.loss, all, 1e-5);
  EXPECT_EQ(of_sequence[2], 0.0);
  const auto loss_of = [&](const std::string& averaging) {
    return loss_step(bench, data, loss_by_name("ppo", {{"averaging", averaging}, {"length_norm", 30.0}})).result.loss;
  };
  EXPECT_NEAR(loss_of("token_mean"), all / tokens, 1e-6);
  EXPECT_NEAR(loss_of("sequence_token_mean"), (of_sequence[0] / weights[0] + of_sequence[1] / weights[1] + of_sequence[3] / weights[3]) / 3, 1e-6);
  EXPECT_NEAR(loss_of("sequence_token_sum"), all / 3, 1e-6);
  EXPECT_NEAR(loss_of("sequence_token_sum_norm"), all / 90, 1e-6);
}

TEST(LossSequences, RatiosAreMeansOverTheMask) {
  const TrainBench bench(kLlama);
  std::vector<TrainSequence> data = loss_data(bench.model->facts().vocabulary);
  data[1].ratio_mask.assign(40, 0.0f);
  for (const std::size_t i : {3, 4, 30}) data[1].ratio_mask[i] = 1;
  const LossStep step = loss_step(bench, data, loss_by_name("gspo", {{"clip_low_threshold", 0.95}, {"clip_high_threshold", 1.05}}));
  for (const std::size_t s : {0, 1, 3}) {
    double sum = 0, count = 0;
    for (std::size_t i = 0; i < data[s].targets.size(); ++i) {
      if (data[s].targets[i] < 0 || (data[s].ratio_mask.empty() ? data[s].weights[i] : data[s].ratio_mask[i]) == 0) continue;
      sum += static_cast<double>(step.result.logprobs[s][i]) - data[s].old_logprobs[i];
      ++count;
    }
    const double ratio = std::exp(sum / count);
    for (std::size_t i = 2; i < data[s].targets.size(); ++i) {
      const double a = data[s].advantages[i], want = -data[s].weights[i] * std::min(ratio * a, std::clamp(ratio, 0.95, 1.05) * a);
      EXPECT_NEAR(step.result.losses[s][i], want, 1e-5) << s << " " << i;
    }
  }
}

// What is masked is as if it were not there; equal rewards move nothing but the KL term; opposite weights cancel exactly.
TEST(LossCorners, MaskedEqualAndOpposite) {
  const TrainBench bench(kLlama);
  const std::vector<TrainSequence> data = loss_data(bench.model->facts().vocabulary);
  std::vector<TrainSequence> without = data;
  without.erase(without.begin() + 2);  // the one that is masked whole
  for (const std::string averaging : {"sum", "token_mean", "sequence_token_mean"}) {
    LossConfig config = kEverything;
    config.emplace_back("averaging", averaging);
    const LossStep all = loss_step(bench, data, loss_by_name("grpo", config)), fewer = loss_step(bench, without, loss_by_name("grpo", config));
    EXPECT_EQ(all.gradients, fewer.gradients) << averaging;
    EXPECT_EQ(all.result.loss, fewer.result.loss);
    EXPECT_EQ(all.result.metrics, fewer.result.metrics);
    EXPECT_EQ(metric(all.result, "sequences:sum"), 3);
  }
  std::vector<TrainSequence> equal = data;
  for (TrainSequence& d : equal) d.advantages.assign(d.advantages.size(), 0.0f), d.old_logprobs[4 % d.old_logprobs.size()] = -3000;
  std::vector<TrainSequence> nothing = equal;
  for (TrainSequence& d : nothing) d.weights.assign(d.weights.size(), 0.0f);
  const std::uint64_t still = loss_step(bench, nothing, loss_by_name("ppo")).gradients;
  const LossStep of_equal = loss_step(bench, equal, loss_by_name("ppo"));
  EXPECT_EQ(of_equal.gradients, still);
  EXPECT_EQ(of_equal.result.loss, 0.0);
  EXPECT_NE(loss_step(bench, equal, loss_by_name("ppo", {{"kl_coefficient", 0.1}})).gradients, still);
  std::vector<TrainSequence> opposite = {data[0], data[0]};
  for (float& w : opposite[1].weights) w = -w;
  const LossStep cancelled = loss_step(bench, opposite, loss_by_name("cross_entropy"));
  EXPECT_EQ(cancelled.gradients, still);
  EXPECT_EQ(cancelled.result.loss, 0.0);
}

TEST(LossMetricNames, HaveOneColonAndAReduction) {
  const TrainBench bench(kLlama);
  const std::vector<TrainSequence> data = loss_data(bench.model->facts().vocabulary);
  for (const std::string& name : loss_names()) {
    const LossStep step = loss_step(bench, data, loss_by_name(name, name == "cross_entropy" ? LossConfig() : kEverything));
    EXPECT_EQ(metric(step.result, "loss:sum"), step.result.loss);
    for (const auto& [key, value] : step.result.metrics) {
      EXPECT_EQ(std::count(key.begin(), key.end(), ':'), 1) << key;
      EXPECT_TRUE((std::set<std::string>{"mean", "sum", "min", "max"}).contains(key.substr(key.find(':') + 1))) << key;
      EXPECT_TRUE(std::isfinite(value)) << key;
    }
    if (name == "cross_entropy") continue;
    double k3 = 0, count = 0;
    for (std::size_t s = 0; s < data.size(); ++s)
      for (std::size_t i = 0; i < data[s].targets.size(); ++i)
        if (data[s].targets[i] >= 0 && data[s].weights[i] != 0) {
          const double l = static_cast<double>(step.result.logprobs[s][i]) - data[s].old_logprobs[i];
          k3 += std::exp(l) - 1 - l;
          ++count;
        }
    EXPECT_NEAR(metric(step.result, "kl_sampler_k3:mean"), k3 / count, 1e-12);
    EXPECT_EQ(metric(step.result, "tokens:sum"), count);
  }
}

class LossSteps : public ::testing::TestWithParam<const char*> {};

TEST_P(LossSteps, HaveOneSetOfBits) {
  const TrainBench bench(GetParam());
  for (const auto& [loss, targets_per_row] : step_losses()) {
    SCOPED_TRACE(static_cast<int>(loss.kind));
    const std::vector<TrainSequence> data = loss_data(bench.model->facts().vocabulary, targets_per_row);
    const LossStep want = loss_step(bench, data, loss);
    for (const LossPlace& place : {LossPlace{.options = {.micro_batch = 1}},
                                   {.options = {.micro_batch = 3}, .threads = 2},
                                   {.options = {.checkpoint_activations = true}},
                                   {.options = {.share_prefixes = true}},
                                   {.backend = BackendKind::deferred},
                                   {.isa = InstructionSet::scalar},
                                   {.isa = InstructionSet::avx2},
                                   {.options = {.ranks = {2, 1, 1}}},
                                   {.options = {.ranks = {1, 3, 1}}},
                                   {.options = {.ranks = {2, 2, 1}}},
                                   {.options = {.ranks = {5, 1, 1}}}})
      EXPECT_EQ(step_difference(loss_step(bench, data, loss, place), want), "")
          << "micro-batch " << place.options.micro_batch << ", ranks " << place.options.ranks.text() << ", backend " << static_cast<int>(place.backend);
    EXPECT_EQ(step_difference(loss_step(bench, data, loss, {}, {{3}, {0, 2}, {1}}), want), "") << "pieces";
    // Beside a sequence with more targets a row, a sequence has its bits.
    std::vector<TrainSequence> wide = data;
    wide.push_back(loss_data(bench.model->facts().vocabulary, 4, 9)[0]);
    if (loss.parameters.entropy_coefficient == 0 && loss.averaging == LossAveraging::sum) {
      EXPECT_EQ(loss_step(bench, wide, loss).result.losses[1], want.result.losses[1]);
    }
    // The control: a number of the data, changed by a little, is seen.
    std::vector<TrainSequence> changed = data;
    changed[3].weights.back() *= 1.001f;
    EXPECT_NE(step_difference(loss_step(bench, changed, loss), want), "");
  }
}
INSTANTIATE_TEST_SUITE_P(Families, LossSteps, ::testing::Values(kLlama, kQwen));

RC_GTEST_PROP(LossProperties, AnyLossOnAnyDataHasTheBitsOfItsPieces, ()) {
  static const TrainBench bench(kLlama);
  const auto name = *rc::gen::elementOf(loss_names());
  LossConfig config;
  if (name != "cross_entropy") {
    if (*rc::gen::arbitrary<bool>())
      config.emplace_back("kl_coefficient", 0.1), config.emplace_back("kl", *rc::gen::element<std::string>("k1", "k2", "k3", "unbiased"));
    if (*rc::gen::arbitrary<bool>()) config.emplace_back("entropy_coefficient", -0.02);
    config.emplace_back("anchor", *rc::gen::element<std::string>("proximal", "current"));
    config.emplace_back("correction", *rc::gen::element<std::string>("none", "tis", "icepop", "mask", "clip"));
    config.emplace_back("correction_level", *rc::gen::element<std::string>("token", "sequence", "geometric"));
  }
  config.emplace_back("averaging", *rc::gen::element<std::string>("sum", "token_mean", "sequence_token_mean", "sequence_token_sum"));
  std::vector<TrainSequence> data = loss_data(bench.model->facts().vocabulary, 1, *rc::gen::inRange<std::uint64_t>(1, 1000000));
  for (TrainSequence& d : data)
    for (std::size_t i = 0; i < d.targets.size(); ++i) {
      if (*rc::gen::inRange(0, 8) == 0) d.targets[i] = -1;
      if (*rc::gen::inRange(0, 8) == 0) d.old_logprobs[i] = static_cast<float>(*rc::gen::inRange(-60, 1));
      if (*rc::gen::inRange(0, 8) == 0) d.advantages[i] = 0;
    }
  const LossOptions loss = loss_by_name(name, config);
  const LossStep want = loss_step(bench, data, loss);
  for (const auto& row : want.result.losses)
    for (const float value : row) RC_ASSERT(std::isfinite(value));
  RC_ASSERT(step_difference(loss_step(bench, data, loss, {.options = {.micro_batch = *rc::gen::inRange<std::int64_t>(1, 4)}, .threads = 2}), want) == "");
  if (loss_normaliser(data, loss) > 0) RC_ASSERT(step_difference(loss_step(bench, data, loss, {}, {{2, 1}, {3}, {0}}), want) == "");
}

}  // namespace
}  // namespace lockstep
