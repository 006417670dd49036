#include "runs/local_trainer.h"

#include <gtest/gtest.h>

#include <bit>
#include <fstream>

#include "base/error.h"
#include "serving/local_sampler.h"

namespace lockstep {
namespace {

std::shared_ptr<Runtime> runtime_of(const std::shared_ptr<const Model>& model, const std::string& profile) {
  return std::make_shared<Runtime>(BackendOptions{.threads = 2}, model, profile_by_name(profile), 128);
}

struct LocalTrainerTest : testing::Test {
  std::shared_ptr<const Model> model =
      make_model(Json::parse(std::ifstream(std::string(LOCKSTEP_SOURCE_DIR) + "/tests/golden/glm_moe_dsa/sharing/config.json")));
  std::shared_ptr<Executor> executor = std::make_shared<Executor>();
  std::shared_ptr<Runtime> runtime = runtime_of(model, "cpu-bf16w");
  WeightImages masters = initial_weights(model->manifest(), 7, 0.25);
  OpenedModel opened = opened_with(runtime);
  LocalTrainer trainer{opened, {}, {}, executor};

  OpenedModel opened_with(const std::shared_ptr<Runtime>& on) {
    OpenedModel made;
    made.name = "tiny";
    made.model = model;
    made.initial = [this] { return masters; };
    made.runtime = on;
    return made;
  }
  std::shared_ptr<GenerationService> service_on(const std::shared_ptr<Runtime>& on) {
    return std::make_shared<GenerationService>(ServingModel{"tiny", on, trainer.weights_for(on).weights, nullptr, executor}, ServingOptions{});
  }
  static std::vector<SampleResult> sample(const std::shared_ptr<GenerationService>& service) {
    LocalSampler sampler(service);
    std::vector<SampleRequest> requests;
    for (std::int32_t i = 0; i < 6; ++i) requests.push_back({.prompt = {1, 2 + i, 3}, .seed = 5, .sample_index = i, .max_tokens = 10});
    return sampler.sample(requests);
  }
  // One sequence a result, trained on all of its sampled tokens.
  static std::vector<PolicyDatum> data_of(const std::vector<SampleResult>& results) {
    std::vector<PolicyDatum> data;
    for (std::size_t i = 0; i < results.size(); ++i) {
      const SampleResult& r = results[i];
      PolicyDatum d;
      d.tokens = {1, 2 + static_cast<std::int32_t>(i), 3};
      d.tokens.insert(d.tokens.end(), r.tokens.begin(), r.tokens.end() - 1);
      d.targets.assign(d.tokens.size(), -1);
      d.weights.assign(d.tokens.size(), 0.0f);
      d.advantages = d.old_logprobs = d.weights;
      for (std::size_t t = 0; t < r.tokens.size(); ++t) {
        d.targets[2 + t] = r.tokens[t];
        d.weights[2 + t] = 1;
        d.advantages[2 + t] = i % 2 ? 1.0f : -1.0f;
        d.old_logprobs[2 + t] = r.sampling_logprobs[t];
      }
      data.push_back(std::move(d));
    }
    return data;
  }
  static std::size_t different_bits(const PolicyResult& result, const std::vector<PolicyDatum>& data) {
    std::size_t different = 0;
    for (std::size_t d = 0; d < data.size(); ++d)
      for (std::size_t i = 0; i < data[d].tokens.size(); ++i)
        if (data[d].weights[i] != 0) different += std::bit_cast<std::uint32_t>(result.logprobs[d][i]) != std::bit_cast<std::uint32_t>(data[d].old_logprobs[i]);
    return different;
  }
};

TEST_F(LocalTrainerTest, SamplerAndTrainerAgreeOnBitsAtEveryVersion) {
  const auto service = service_on(runtime);
  trainer.follow(service, runtime);
  EXPECT_EQ(trainer.weights_for(runtime).weights, trainer.weights_for(runtime).weights);  // a pointer, nothing made
  std::vector<std::vector<std::int32_t>> first;
  for (std::uint64_t step = 0; step < 3; ++step) {
    const auto results = sample(service);
    for (const SampleResult& r : results) {
      EXPECT_EQ(r.weights_version, step);
      EXPECT_FALSE(r.mixed_versions);
      if (step == 0) first.push_back(r.tokens);
    }
    EXPECT_EQ(trainer.weights_version(), step);
    const auto data = data_of(results);
    EXPECT_EQ(different_bits(trainer.forward_backward(data, {}), data), 0u);
    EXPECT_GT(trainer.optim_step({.learning_rate = 1e-2}), 0.0);
  }
  std::vector<std::vector<std::int32_t>> last;
  for (const SampleResult& r : sample(service)) last.push_back(r.tokens);
  EXPECT_NE(first, last);  // it did learn something
}

// What a token was drawn from goes with it, through both ports.
TEST_F(LocalTrainerTest, TheyAgreeAtEverySamplingSetting) {
  const auto service = service_on(runtime);
  trainer.follow(service, runtime);
  LocalSampler sampler(service);
  for (int step = 0; step < 2; ++step) {
    std::vector<SampleRequest> requests;
    for (std::int32_t i = 0; i < 8; ++i) {
      SampleRequest& r = requests.emplace_back(SampleRequest{.prompt = {1, 2 + i, 3}, .seed = 5, .sample_index = i, .max_tokens = 10, .kept_tokens = true});
      r.temperature = i % 2 ? 0.7f : 1.3f;
      r.top_k = i % 3 == 0 ? 0 : 3 + 9 * i;
      r.top_p = i % 4 < 2 ? 1.0f : 0.8f;
      r.min_p = i < 4 ? 0.0f : 0.02f;
    }
    const auto results = sampler.sample(requests);
    std::vector<PolicyDatum> data = data_of(results), plain = data;
    std::size_t cut = 0;
    for (std::size_t i = 0; i < data.size(); ++i) {
      data[i].temperature = plain[i].temperature = requests[i].temperature;
      data[i].kept_tokens.resize(2);
      for (const KeptTokens& kept : results[i].kept_tokens) cut += kept.cut();
      data[i].kept_tokens.insert(data[i].kept_tokens.end(), results[i].kept_tokens.begin(), results[i].kept_tokens.end());
    }
    EXPECT_GT(cut, 30u);
    EXPECT_EQ(different_bits(trainer.forward_backward(data, {}), data), 0u);
    trainer.abandon_gradients();
    EXPECT_GT(different_bits(trainer.forward_backward(plain, {}), plain), 20u);  // the control: without the kept sets
    EXPECT_GT(trainer.optim_step({.learning_rate = 1e-2}), 0.0);
  }
}

TEST_F(LocalTrainerTest, AnotherProfileNeedsTheSwitch) {
  const auto other = runtime_of(model, "study-bf16-activations");
  const auto service = service_on(other);
  try {
    trainer.follow(service, other);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::invalid_argument);
    for (const auto& digest : {runtime->profile.digest(), other->profile.digest()}) EXPECT_NE(std::string(e.what()).find(digest), std::string::npos);
  }
  trainer.follow(service, other, ProfileMix::allowed);
  for (std::uint64_t step = 0; step < 2; ++step) {
    const auto results = sample(service);
    EXPECT_EQ(results[0].weights_version, step);
    const auto data = data_of(results);
    EXPECT_GT(different_bits(trainer.forward_backward(data, {}), data), 0u);
    trainer.optim_step({.learning_rate = 1e-2});
  }
}

// A second runtime of the same profile gets weights of its own, with the same bits.
TEST_F(LocalTrainerTest, AnotherRuntimeOfTheSameProfileIsFollowedUnasked) {
  const auto other = runtime_of(model, "cpu-bf16w");
  const auto service = service_on(other);
  trainer.follow(service, other);
  for (int step = 0; step < 2; ++step) {
    const auto data = data_of(sample(service));
    EXPECT_EQ(different_bits(trainer.forward_backward(data, {}), data), 0u);
    trainer.optim_step({.learning_rate = 1e-2});
  }
}

TEST_F(LocalTrainerTest, ARestoredTrainerIsPublished) {
  const auto service = service_on(runtime);
  trainer.follow(service, runtime);
  const auto data = data_of(sample(service));
  trainer.forward_backward(data, {});
  trainer.optim_step({});
  const TrainerState state = trainer.with_model([](TrainedModel& m) { return state_of(m); });
  const auto wanted = sample(service);
  trainer.forward_backward(data, {});
  trainer.optim_step({.learning_rate = 1e-1});
  trainer.with_model([&](TrainedModel& m) { m.restore(state); });
  trainer.publish();
  const auto got = sample(service);
  EXPECT_EQ(trainer.weights_version(), 1u);
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_EQ(got[i].tokens, wanted[i].tokens);
    EXPECT_EQ(got[i].sampling_logprobs, wanted[i].sampling_logprobs);
  }
}

TEST_F(LocalTrainerTest, ErrorsReachTheCaller) {
  EXPECT_THROW(trainer.optim_step({}), Error);  // nothing was accumulated
  PolicyDatum bad;
  bad.tokens = {1};
  bad.targets = {1};
  bad.weights = {1};
  EXPECT_THROW(trainer.forward_backward({bad}, {}), Error);  // no advantages
}

}  // namespace
}  // namespace lockstep
