// Deployments that leave memory while nobody asks them, behind the API: they come back with the bits that they had, requests wait for them or are told when to
// come again, and what is wanted takes the room of what is idle.
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <thread>

#include "api/api_test_tools.h"
#include "api/fireworks/model_completions.h"
#include "api/openai/model_deployment_routes.h"
#include "api/openai/openai_api.h"
#include "serving/loading.h"

namespace lockstep {
namespace {

std::shared_ptr<GenerationService> service_as(const std::string& name, const std::string& profile, const std::shared_ptr<Executor>& executor) {
  ServingModel model = serving_model(open_model({.model = LOCKSTEP_SOURCE_DIR "/models/countdown-glm", .profile = profile, .threads = 2}));
  model.name = name;
  model.executor = executor;
  return std::make_shared<GenerationService>(std::move(model), ServingOptions{});
}

// "a" and "b", as two models: b computes in fp32. Neither can be loaded again.
class SleepingDeployments : public testing::Test {
 protected:
  SleepingDeployments() {
    deployments_ =
        std::make_shared<Deployments>(std::make_shared<TrafficTable>(), ModelDeployment{.name = "a", .service = service_as("a", "cpu-bf16w", executor_)});
    deployments_->add({.name = "b", .service = service_as("b", "cpu-f32", executor_)});
    add_openai_routes(routes_, std::shared_ptr<const Deployments>(deployments_));
    add_model_completions(routes_, deployments_);
    add_model_deployment_routes(routes_, deployments_, {.gate = std::make_shared<AliasGate>(deployments_, nullptr)});
  }
  ~SleepingDeployments() override { deployments_->stop(); }
  std::shared_ptr<Recorder> call(const std::string& method, const std::string& path, const std::string& body = {}) {
    const auto recorder = std::make_shared<Recorder>();
    routes_.handle({.method = method, .path = path, .content_type = "application/json", .body = body}, recorder);
    return recorder;
  }

  const std::shared_ptr<Executor> executor_ = std::make_shared<Executor>();
  std::shared_ptr<Deployments> deployments_;
  Routes routes_;  // last: its threads end first
};

// One that can be loaded again, as often as it is told.
ModelDeployment sleeper(const std::string& name, const std::string& profile, const std::shared_ptr<Executor>& executor, std::atomic<int>& loads,
                        std::function<void()> before = {}) {
  ModelDeployment made{.name = name};
  made.load = [=, &loads] {
    if (before) before();
    ++loads;
    return LoadedDeployment{{}, service_as(name, profile, executor)};
  };
  return made;
}

std::string answer_of(const std::shared_ptr<Recorder>& told) {
  Json json = told->json();
  for (const char* name : {"id", "created"}) json.erase(name);
  return json.dump();
}

// It leaves memory when nobody asks it, is loaded again when somebody does, and answers as if nothing had been.
TEST_F(SleepingDeployments, OneThatNobodyAsksSleepsAndComesBack) {
  std::atomic<int> loads = 0;
  deployments_->add(sleeper("c", "cpu-f32", executor_, loads));
  deployments_->route("chat", {{"c", 1}});
  deployments_->set_sleep({.idle_seconds = 0.2, .hold_seconds = 60});
  const auto state = [&] { return call("GET", "/v1/deployments")->json().at("data").at(2); };
  EXPECT_EQ(state().at("state"), "asleep");
  EXPECT_EQ(call("GET", "/v1/models/c")->json().at("asleep"), true);
  EXPECT_EQ(call("GET", "/v1/models")->json().at("data").at(2).at("asleep"), true);
  EXPECT_EQ(loads, 0);  // who looks does not wake it
  const auto body = [](const char* model) { return fmt::format(R"({{"model":"{}","prompt":"3 7 12=48:","max_tokens":5,"seed":5,"logprobs":1}})", model); };
  const std::string first = answer_of(call("POST", "/v1/completions", body("c")));
  EXPECT_GE(loads, 1);
  std::string b = answer_of(call("POST", "/v1/completions", body("b")));
  b.replace(b.find("\"model\":\"b\""), 11, "\"model\":\"c\"");
  EXPECT_EQ(first, b);
  const auto falls_asleep = [&] {
    for (int i = 0; i < 500 && deployments_->list().at(2).service; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return state().at("state") == "asleep";
  };
  EXPECT_TRUE(falls_asleep());
  EXPECT_TRUE(deployments_->list().at(1).service);  // which cannot be loaded again
  for (const char* model : {"c", "chat"}) EXPECT_EQ(answer_of(call("POST", "/v1/completions", body(model))), first) << model;
  EXPECT_GE(loads, 2);
  EXPECT_EQ(call("POST", "/v1/tokenize", R"({"model":"c","prompt":"3 7"})")->wait().status, 200);
  // Not while it answers, however long that takes.
  std::shared_ptr<Recorder> running =
      call("POST", "/v1/completions", R"({"model":"c","prompt":"3 7 12=48:","max_tokens":400,"ignore_eos":true,"seed":5,"stream":true})");
  EXPECT_EQ(stream_parts(running->wait().body).back().at("choices").at(0).at("finish_reason"), "length");
  running.reset();
  EXPECT_TRUE(falls_asleep());
  EXPECT_EQ(call("POST", "/inference/v1/completions", body("chat"))->json().at("model"), "c");
  EXPECT_EQ(state().at("loads"), loads.load());
  PrometheusText text;
  append_deployment_metrics(*deployments_, text);
  const std::string metrics = text.take();
  EXPECT_NE(metrics.find("lockstep_deployment_sequences_total{deployment=\"c\"} 5"), std::string::npos) << metrics;  // over all its lives
  deployments_->traffic().remove("chat");
  EXPECT_TRUE(falls_asleep());
  EXPECT_EQ(call("DELETE", "/v1/deployments/c")->json().at("deleted"), true);  // asleep
  EXPECT_EQ(call("POST", "/v1/completions", body("c"))->wait().status, 404);
}

TEST_F(SleepingDeployments, WhoDoesNotWaitIsToldWhenToComeAgain) {
  std::atomic<int> loads = 0;
  std::promise<void> may_load;
  std::shared_future<void> load = may_load.get_future().share();
  std::atomic<bool> broken = false;
  deployments_->add(sleeper("c", "cpu-f32", executor_, loads, [&, load] {
    load.wait();
    if (broken) fail(ErrorCode::io, "the folder is gone");
  }));
  deployments_->set_sleep({.idle_seconds = 100, .hold_seconds = 0});
  const auto asked = [&](const char* path) { return call("POST", path, R"({"model":"c","prompt":"3 7","max_tokens":1})"); };
  for (const char* path : {"/v1/completions", "/inference/v1/completions"}) {
    const std::shared_ptr<Recorder> told = asked(path);
    EXPECT_EQ(told->wait().status, 503) << path;
    EXPECT_EQ(told->wait().headers, (HeaderList{{"Retry-After", "1"}}));
    EXPECT_EQ(told->json().at("error").at("code"), "model_asleep");
    EXPECT_NE(told->wait().body.find("the model 'c' was idle and is being loaded again; ask in 1 seconds"), std::string::npos) << told->wait().body;
  }
  EXPECT_EQ(call("GET", "/v1/deployments")->json().at("data").at(2).at("state"), "loading");
  broken = true;
  may_load.set_value();
  const auto fault = [&] { return call("GET", "/v1/deployments")->json().at("data").at(2).at("fault"); };
  for (int i = 0; i < 500 && fault().is_null(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(fault(), "the folder is gone");
  broken = false;
  EXPECT_NE(asked("/v1/completions")->wait().body.find("the last time it could not be loaded: the folder is gone"), std::string::npos);
  int status = 0;
  for (int i = 0; i < 500 && status != 200; ++i) {
    status = asked("/v1/completions")->wait().status;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_EQ(status, 200);
  EXPECT_TRUE(fault().is_null());
  EXPECT_EQ(loads, 1);
}

// Where there is no memory those go to sleep that were idle longest, and none that is asked.
TEST_F(SleepingDeployments, WhatIsWantedTakesTheRoomOfWhatIsIdle) {
  const auto ledger = std::make_shared<MemoryLedger>(2);
  std::atomic<int> loads = 0;
  for (const char* name : {"c", "d", "e"}) {
    ModelDeployment one = sleeper(name, "cpu-f32", executor_, loads);
    one.load = [load = one.load, ledger] {
      std::vector<MemoryLedger::Claim> room;
      room.push_back(ledger->claim("deployments", {}, 1, "one"));
      LoadedDeployment loaded = load();
      loaded.memory.claims = std::move(room);
      return loaded;
    };
    deployments_->add(std::move(one));
  }
  deployments_->set_sleep({.idle_seconds = 100, .hold_seconds = 60});
  const auto ask = [&](const char* model) {
    return call("POST", "/v1/completions", fmt::format(R"({{"model":"{}","prompt":"3 7","max_tokens":1}})", model))->wait().status;
  };
  const auto in_memory = [&] {
    std::string names;
    for (const DeploymentLine& line : deployments_->list()) names += line.service ? line.name : "";
    return names;
  };
  EXPECT_EQ(in_memory(), "ab");
  EXPECT_EQ(ask("c"), 200);
  EXPECT_EQ(ask("d"), 200);
  EXPECT_EQ(ask("c"), 200);
  EXPECT_EQ(in_memory(), "abcd");
  EXPECT_EQ(ask("e"), 200);
  EXPECT_EQ(in_memory(), "abce");
  EXPECT_EQ(ledger->held(), 2);
  // Both are asked: there is no room, and that is said.
  const std::shared_ptr<GenerationService> c = deployments_->list().at(2).service, e = deployments_->list().at(4).service;
  EXPECT_EQ(ask("d"), 503);
  EXPECT_EQ(in_memory(), "abce");
}

}  // namespace
}  // namespace lockstep
