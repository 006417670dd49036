// The gate lets a version through that answers as the live one does, and stops one that is worse, one with a wrong tensor, and one of whose weights no digest
// is known; each with one sentence and the figures.
#include "jobs/deployment_gate.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <future>

#include "base/error.h"
#include "base/file.h"
#include "rl/evaluation.h"
#include "serving/loading.h"
#include "serving/local_sampler.h"

namespace lockstep {
namespace {

constexpr const char kGateModel[] = LOCKSTEP_SOURCE_DIR "/models/countdown-glm";

class DeploymentGate : public testing::Test {
 protected:
  ~DeploymentGate() override { std::filesystem::remove_all(root_); }
  GateSide opened(const std::string& name, const std::string& folder = kGateModel) {
    ServingModel model = serving_model(open_model({.model = folder, .profile = "cpu-bf16w", .threads = 2}));
    model.name = name;
    model.executor = executor_;
    return {name, std::make_shared<GenerationService>(std::move(model), ServingOptions{}), std::string(64, 'a')};
  }
  // The shipped model with one tensor of zeros.
  std::string without(const std::string& tensor) {
    const std::filesystem::path folder = root_ / tensor;
    std::filesystem::create_directories(folder);
    for (const auto& entry : std::filesystem::directory_iterator(kGateModel)) std::filesystem::copy_file(entry.path(), folder / entry.path().filename());
    std::string bytes = read_file(folder / "model.safetensors", std::size_t{1} << 28);
    std::uint64_t header = 0;
    std::memcpy(&header, bytes.data(), sizeof header);
    const auto json = nlohmann::json::parse(bytes.substr(8, header));
    const auto offsets = json.at(tensor).at("data_offsets");
    for (std::size_t at = 8 + header + offsets.at(0).get<std::size_t>(); at < 8 + header + offsets.at(1).get<std::size_t>(); ++at) bytes[at] = 0;
    std::ofstream(folder / "model.safetensors", std::ios::binary) << bytes;
    return folder.string();
  }
  static const GateCheck& check_of(const GateReport& report, const std::string& name) {
    for (const GateCheck& one : report.checks)
      if (one.name == name) return one;
    ADD_FAILURE() << "no check " << name;
    return report.checks.front();
  }
  static GateSpec countdown() {
    GateSpec spec;
    spec.environment = "countdown";
    spec.problems = 60;
    spec.max_tokens = 16;
    spec.accuracy_drop = 0.05;
    spec.texts = {"3 7 12=48:7-3=4,12*4=48", "2 4 10=60:4+2=6,10*6=60", "1 5 8=32:5-1=4,8*4=32", "3 5 7=56:5+3=8,8*7=56"};
    spec.logprob_drop = 0.01;
    return spec;
  }

  const std::shared_ptr<Executor> executor_ = std::make_shared<Executor>();
  const std::filesystem::path root_ = std::filesystem::temp_directory_path() / fmt::format("lockstep-gate-{}", getpid());
};

TEST_F(DeploymentGate, AGoodVersionPassesWithItsFigures) {
  const GateReport report = judge_deployment(countdown(), opened("v8"), opened("v7"), {});
  EXPECT_TRUE(report.passed()) << report.reason();
  ASSERT_EQ(report.checks.size(), 6u);
  const auto& accuracy = check_of(report, "accuracy").figures;
  EXPECT_EQ(accuracy.at("problems"), 60);
  EXPECT_GT(accuracy.at("accuracy").at("value").get<double>(), 0.0);  // else worse ones could not be told from it
  EXPECT_EQ(accuracy.at("difference").at("value"), 0.0);
  EXPECT_EQ(accuracy.at("live_accuracy"), accuracy.at("accuracy"));
  EXPECT_EQ(check_of(report, "company").figures.at("prompts"), 8);
  const auto& logprob = check_of(report, "log-probability").figures;
  EXPECT_EQ(logprob.at("logprob"), logprob.at("live_logprob"));
  EXPECT_LT(logprob.at("logprob").get<double>(), 0.0);
  EXPECT_EQ(check_of(report, "digests").figures.at("snapshot"), std::string(64, 'a'));
  // What it samples has the log-probabilities that the same weights give it when they score it, to the bit.
  const auto& divergence = check_of(report, "divergence").figures;
  EXPECT_EQ(divergence.at("prompts"), 60);
  EXPECT_GE(divergence.at("tokens").get<std::int64_t>(), 60 * 2);
  EXPECT_EQ(divergence.at("kl"), 0.0);
  EXPECT_EQ(divergence.at("k3"), 0.0);
  EXPECT_EQ(divergence.at("mean_absolute"), 0.0);
  EXPECT_EQ(divergence.at("largest").at("log_ratio"), 0.0);
  EXPECT_FALSE(divergence.contains("kl_limit"));
  const auto& speed = check_of(report, "speed").figures;
  EXPECT_EQ(speed.at("prompts"), 8);
  EXPECT_EQ(speed.at("tokens"), 8 * 16);  // end tokens end nothing here
  EXPECT_EQ(speed.at("rounds").size(), 3u);
  EXPECT_EQ(speed.at("live_rounds").size(), 3u);
  EXPECT_GT(speed.at("tokens_per_second").get<double>(), 0.0);
  EXPECT_GT(speed.at("live_tokens_per_second").get<double>(), 0.0);
  EXPECT_TRUE(to_json(report).at("passed").get<bool>());
  EXPECT_FALSE(to_json(report).at("forced").get<bool>());
  // Without a live version there is nothing to be worse than.
  const GateReport first = judge_deployment(countdown(), opened("v8"), std::nullopt, {});
  EXPECT_TRUE(first.passed());
  ASSERT_EQ(first.checks.size(), 5u);  // and nothing to be far from
  EXPECT_FALSE(check_of(first, "speed").figures.contains("live_tokens_per_second"));
}

// All log-probabilities of the token behind a prompt, of the forward that scores every token of the vocabulary.
std::vector<double> distribution_behind(const GateSide& side, const std::vector<std::int32_t>& prompt) {
  const auto vocabulary = static_cast<std::int32_t>(side.service->limits().vocabulary);
  Request request{.prompt = prompt};
  request.prompt.push_back(0);
  request.sampling.max_tokens = 0;
  request.prompt_logprobs = true;
  request.prompt_targets_per_row = vocabulary;
  request.prompt_targets.assign(prompt.size() * static_cast<std::size_t>(vocabulary), -1);
  for (std::int32_t token = 0; token < vocabulary; ++token)
    request.prompt_targets[request.prompt_targets.size() - static_cast<std::size_t>(vocabulary) + static_cast<std::size_t>(token)] = token;
  const auto told = std::make_shared<std::promise<Generation>>();
  side.service->generate(std::move(request), {}, [told](Generation&& g) { told->set_value(std::move(g)); });
  const Generation scored = told->get_future().get();
  return {scored.prompt_target_logprobs.end() - vocabulary, scored.prompt_target_logprobs.end()};
}

TEST_F(DeploymentGate, TheDivergenceIsThatOfTheWholeDistributions) {
  const GateSide live = opened("v7"), wrong = opened("v8", without("model.layers.1.self_attn.o_proj.weight"));
  GateSpec spec;
  spec.questions.assign(600, {"3 7 12=48:7-", "3"});  // each with a seed of its own
  spec.max_tokens = 1;
  spec.accuracy_drop = 1;
  spec.company = 0;
  const GateReport report = judge_deployment(spec, wrong, live, {});
  EXPECT_TRUE(report.passed()) << report.reason();
  const auto& figures = check_of(report, "divergence").figures;
  const std::vector<std::int32_t> prompt = live.service->model().tokenizer().encode("3 7 12=48:7-", true);
  const std::vector<double> p = distribution_behind(wrong, prompt), q = distribution_behind(live, prompt);
  double mass = 0, kl = 0, square = 0;
  for (std::size_t i = 0; i < p.size(); ++i) {
    const double ratio = p[i] - q[i];
    mass += std::exp(p[i]), kl += std::exp(p[i]) * ratio, square += std::exp(p[i]) * ratio * ratio;
  }
  ASSERT_NEAR(mass, 1, 1e-3);
  ASSERT_GT(kl, 0.01);
  const double error = std::sqrt((square - kl * kl) / 600);
  EXPECT_EQ(figures.at("tokens"), 600);
  EXPECT_NEAR(figures.at("kl").get<double>(), kl, 5 * error);
  EXPECT_GT(figures.at("k3").get<double>(), 0.0);
  EXPECT_GE(std::abs(figures.at("largest").at("log_ratio").get<double>()), figures.at("p99_absolute").get<double>());
  EXPECT_GE(figures.at("p99_absolute").get<double>(), figures.at("mean_absolute").get<double>());
  // The other way round it is another figure: the samples are the candidate's.
  double other = 0;
  for (std::size_t i = 0; i < p.size(); ++i) other += std::exp(q[i]) * (q[i] - p[i]);
  ASSERT_GT(std::abs(other - kl), 10 * error);
}

TEST_F(DeploymentGate, AVersionThatIsFarOrSlowIsStopped) {
  const GateSide live = opened("v7"), wrong = opened("v8", without("model.layers.1.self_attn.o_proj.weight"));
  GateSpec spec = countdown();
  spec.texts.clear();
  spec.accuracy_drop = 1;
  spec.company = 0;
  spec.kl_limit = 0.02;
  const GateReport far = judge_deployment(spec, wrong, live, {});
  EXPECT_FALSE(far.passed());
  EXPECT_GT(check_of(far, "divergence").figures.at("kl").get<double>(), 0.02);
  EXPECT_EQ(check_of(far, "divergence").figures.at("kl_limit"), 0.02);
  EXPECT_NE(far.reason().find("nats a token from 'v7', which is live"), std::string::npos) << far.reason();
  EXPECT_TRUE(check_of(far, "accuracy").why.empty() && check_of(far, "speed").why.empty());
  spec.kl_limit = 1000;
  EXPECT_TRUE(judge_deployment(spec, wrong, live, {}).passed());
  // Weights that are the live ones pass any bound on divergence, and have the same speed.
  spec.kl_limit = 0;
  spec.speed_drop = 0.99;
  const GateReport same = judge_deployment(spec, opened("v9"), live, {});
  EXPECT_TRUE(same.passed()) << same.reason();
  EXPECT_EQ(check_of(same, "speed").figures.at("speed_drop"), 0.99);
  spec.speed_drop = -100;  // it would have to be 101 times as fast
  const GateReport slow = judge_deployment(spec, opened("v9"), live, {});
  EXPECT_NE(check_of(slow, "speed").why.find("tokens a second and 'v7', which is live"), std::string::npos) << slow.reason();
  EXPECT_TRUE(check_of(slow, "divergence").why.empty());
}

TEST_F(DeploymentGate, AWrongTensorIsStoppedByEachCheckAlone) {
  const GateSide live = opened("v7"), wrong = opened("v8", without("model.layers.1.self_attn.o_proj.weight"));
  GateSpec answers = countdown();
  answers.texts.clear();
  const GateReport by_answers = judge_deployment(answers, wrong, live, {});
  EXPECT_FALSE(by_answers.passed());
  EXPECT_NE(by_answers.reason().find("'v7', which is live"), std::string::npos) << by_answers.reason();
  EXPECT_LT(check_of(by_answers, "accuracy").figures.at("difference").at("value").get<double>(), -0.05);
  EXPECT_TRUE(check_of(by_answers, "company").why.empty());
  GateSpec texts = countdown();
  texts.environment.clear();
  const GateReport by_texts = judge_deployment(texts, wrong, live, {});
  EXPECT_FALSE(by_texts.passed());
  EXPECT_NE(by_texts.reason().find("mean log-probability"), std::string::npos) << by_texts.reason();
  EXPECT_FALSE(to_json(by_texts).at("passed").get<bool>());
  // The other way round the same difference is a gain.
  EXPECT_TRUE(judge_deployment(countdown(), live, wrong, {}).passed());
  // And bounds that allow it let it through.
  texts.logprob_drop = 1000;
  EXPECT_TRUE(judge_deployment(texts, wrong, live, {}).passed());
}

TEST_F(DeploymentGate, WeightsWithoutADigestAreStoppedUnlessItSaysSo) {
  GateSide candidate = opened("v8");
  candidate.snapshot.clear();
  GateSpec spec = countdown();
  spec.environment.clear();
  EXPECT_NE(judge_deployment(spec, candidate, std::nullopt, {}).reason().find("was not made of a snapshot"), std::string::npos);
  spec.digests = false;
  EXPECT_TRUE(judge_deployment(spec, candidate, std::nullopt, {}).passed());
}

TEST_F(DeploymentGate, QuestionsHaveTheirAnswers) {
  const GateSide side = opened("v8");
  LocalSampler sampler(side.service);
  const Tokenizer& tokenizer = side.service->model().tokenizer();
  SampleRequest request{.prompt = tokenizer.encode("3 7 12=48:", true), .temperature = 0, .max_tokens = 32, .stop_tokens = sampler.end_tokens()};
  std::vector<std::int32_t> tokens = sampler.sample({request}).front().tokens;
  tokens.pop_back();  // the end token
  const std::string said = tokenizer.decode(tokens, false);
  ASSERT_FALSE(said.empty());
  GateSpec spec;
  spec.questions = {{"3 7 12=48:", " " + said + "\n"}, {"3 7 12=48:", "something else"}};
  spec.max_tokens = 32;
  const GateReport report = judge_deployment(spec, side, std::nullopt, {});
  EXPECT_TRUE(report.passed()) << report.reason();
  EXPECT_EQ(check_of(report, "accuracy").figures.at("accuracy").at("value"), 0.5);
  spec.accuracy_floor = 0.6;
  EXPECT_NE(judge_deployment(spec, side, std::nullopt, {}).reason().find("the floor is 0.6"), std::string::npos);
}

TEST_F(DeploymentGate, WhatDoesNotFitIsTheSpecificationsFault) {
  const GateSide side = opened("v8");
  const auto code = [&](const GateSpec& spec, const StopToken& stop = {}) {
    try {
      judge_deployment(spec, side, std::nullopt, stop);
    } catch (const Error& e) {
      return e.code();
    }
    return ErrorCode::internal;
  };
  GateSpec spec = countdown();
  spec.environment = "no-such";
  EXPECT_EQ(code(spec), ErrorCode::invalid_argument);
  spec = countdown();
  spec.max_tokens = 60'000;  // more than the context
  EXPECT_EQ(code(spec), ErrorCode::invalid_argument);
  spec = countdown();
  spec.environment.clear();
  spec.texts = {""};
  EXPECT_EQ(code(spec), ErrorCode::invalid_argument);
  StopSource source;
  source.stop();
  EXPECT_EQ(code(countdown(), source.token()), ErrorCode::cancelled);
}

}  // namespace
}  // namespace lockstep
