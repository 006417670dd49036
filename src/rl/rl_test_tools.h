// A game small enough to know every answer, and test doubles of the interfaces that play it. Tests only.
#pragma once
#include <gtest/gtest.h>

#include <deque>

#include "base/philox.h"
#include "rl/environment.h"
#include "rl/settings.h"
#include "runs/trainer_port.h"
#include "serving/ports.h"
#include "text/tokenizer/tokenizer.h"

namespace lockstep {

inline Tokenizer countdown_tokenizer() { return Tokenizer::from_file(std::string(LOCKSTEP_SOURCE_DIR) + "/models/countdown-glm/tokenizer.json"); }
inline constexpr std::int32_t kTestEnd = 102;

// "7:" is answered by "7".
class EchoEnvironment : public OneTurnEnvironment {
 public:
  std::string name() const override { return "echo"; }
  Problem problem(Split split, std::uint64_t seed, std::uint64_t index) const override {
    const std::int64_t number = static_cast<std::int64_t>((seed + index) % 40) + (split == Split::train ? 0 : 40);
    return {static_cast<std::uint64_t>(number), std::to_string(number) + ":", {number}};
  }
  double reward(const Problem& problem, std::string_view completion) const override { return completion == std::to_string(problem.data[0]) ? 1.0 : 0.0; }
  std::string reference_completion(const Problem& problem) const override { return std::to_string(problem.data[0]); }
};

// Answers right with a probability, otherwise `wrong`; log-probabilities are a function of the token.
class FakeSampler : public Sampler {
 public:
  explicit FakeSampler(const Tokenizer& tokenizer) : tokenizer(tokenizer) {}
  std::vector<SampleResult> sample(const std::vector<SampleRequest>& asked) override {
    std::vector<SampleResult> results;
    for (const SampleRequest& r : asked) {
      requests.push_back(r);
      std::string text = tokenizer.decode(r.prompt, false);
      text.pop_back();
      RandomSequence random(r.seed, RandomStream::sampling, static_cast<std::uint64_t>(r.sample_index));
      if (random.uniform() >= (r.temperature > 0 ? right : greedy_right)) text = wrong;
      SampleResult result;
      result.tokens = tokenizer.encode(text, false);
      result.tokens.push_back(kTestEnd);
      result.finish = SampleFinish::stop;
      if (cut) result.tokens.pop_back(), result.finish = SampleFinish::length;
      for (const std::int32_t t : result.tokens) result.sampling_logprobs.push_back(-0.5f - 0.01f * static_cast<float>(t));
      result.raw_logprobs = result.sampling_logprobs;
      result.weights_version = version;
      results.push_back(std::move(result));
    }
    return results;
  }
  std::string profile_digest() const override { return digest; }
  std::uint64_t weights_version() const override { return version; }
  std::vector<std::int32_t> end_tokens() const override { return {kTestEnd}; }

  const Tokenizer& tokenizer;
  double right = 0.5, greedy_right = 1;
  std::string wrong = "0";
  bool cut = false;
  std::string digest = "same";
  std::uint64_t version = 0;
  std::vector<SampleRequest> requests;
};

// Returns the sampler's log-probabilities plus `shift`, and records its inputs.
class FakeTrainer : public TrainerPort {
 public:
  explicit FakeTrainer(FakeSampler& sampler) : sampler(sampler) {}
  std::vector<std::vector<float>> score(const std::vector<PolicyDatum>& fed) override {
    std::vector<std::vector<float>> scored;
    ++scores;
    for (const PolicyDatum& d : fed) scored.push_back(d.old_logprobs);
    return scored;
  }
  std::vector<std::vector<float>> reference(const std::vector<PolicyDatum>& fed) override {
    std::vector<std::vector<float>> scored = score(fed);
    for (std::vector<float>& rows : scored)
      for (float& row : rows) row -= reference_shift;
    return scored;
  }
  void save(const RunDirectory&, const nlohmann::ordered_json&, std::int64_t) override {}
  nlohmann::ordered_json load(const RunDirectory&) override { return nlohmann::ordered_json::object(); }
  PolicyResult forward_backward(const std::vector<PolicyDatum>& fed, const PolicyLoss& with) override {
    data = fed;
    loss = with;
    calls.push_back(fed);
    PolicyResult result;
    for (const PolicyDatum& d : fed) {
      std::vector<float> logprobs, entropies(d.tokens.size(), 1.5f);
      for (std::size_t i = 0; i < d.tokens.size(); ++i)
        logprobs.push_back(d.weights[i] != 0 ? d.old_logprobs[i] + shift + step_shift * static_cast<float>(steps.size()) : 0.0f);
      result.logprobs.push_back(logprobs);
      result.entropies.push_back(entropies);
    }
    return result;
  }
  void abandon_gradients() override { ++abandoned; }
  double optim_step(const OptimizerStep& step) override {
    steps.push_back(step);
    ++version;
    if (publishes) sampler.version = version;
    return 0.25;
  }
  std::string profile_digest() const override { return "same"; }
  std::uint64_t weights_version() const override { return version; }

  FakeSampler& sampler;
  float shift = 0;  // of log-probabilities; `step_shift` more from each step on
  float step_shift = 0;
  float reference_shift = 0;  // log-probabilities above the reference's
  int abandoned = 0, scores = 0;
  std::vector<std::vector<PolicyDatum>> calls;
  bool publishes = true;
  std::uint64_t version = 0;
  std::vector<PolicyDatum> data;
  PolicyLoss loss;
  std::vector<OptimizerStep> steps;
};

// Six problems with four rollouts each, and the test doubles that run them.
struct GameTest : testing::Test {
  Tokenizer tokenizer = countdown_tokenizer();
  EchoEnvironment environment;
  FakeSampler sampler{tokenizer};
  FakeTrainer trainer{sampler};
  RlSettings settings = [] {
    RlSettings s;
    s.problems = 6;
    s.rollouts = 4;
    return s;
  }();
};

}  // namespace lockstep
