// The gate lets a version through that answers as the live one does, and stops one that is worse, one with a wrong tensor, and one of whose weights no digest
// is known; each with one sentence and the figures.
#include "jobs/deployment_gate.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

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
  ASSERT_EQ(report.checks.size(), 4u);
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
  EXPECT_TRUE(to_json(report).at("passed").get<bool>());
  // Without a live version there is nothing to be worse than.
  EXPECT_TRUE(judge_deployment(countdown(), opened("v8"), std::nullopt, {}).passed());
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
