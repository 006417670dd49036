// Routes that act on what is there answer soon, however long a body is: held streams, adapters, ids, deployments, and aliases with a gate. The readers of
// what is generated have a test of their own (api/readers_growth_test.cpp), training has tinker/training_bodies_test.cpp.
#include <gtest/gtest.h>

#include "api/api_test_tools.h"
#include "api/body_time_test_tools.h"
#include "api/openai/alias_gate.h"
#include "api/openai/held_streams.h"
#include "api/openai/model_deployment_routes.h"
#include "api/openai/openai_api.h"
#include "serving/loading.h"

namespace lockstep {
namespace {
#ifndef __SANITIZE_THREAD__  // work that is counted: nothing for ThreadSanitizer to see, and minutes under it

class LongBodies : public testing::Test {
 protected:
  LongBodies() {
    ServingModel model = serving_model(open_model({.model = LOCKSTEP_SOURCE_DIR "/models/countdown-glm", .profile = "cpu-bf16w", .threads = 1}));
    model.name = "v7";
    model.executor = executor_;
    ModelDeployment first;
    first.name = "v7";
    first.service = std::make_shared<GenerationService>(std::move(model), ServingOptions{});
    deployments_ = std::make_shared<Deployments>(std::make_shared<TrafficTable>(), std::move(first));
    deployments_->route("chat", {{"v7", 1}});
    const auto judge = [](const GateSpec&, const GateSide& candidate, const std::optional<GateSide>&, const StopToken&) {
      GateReport report;
      report.candidate = candidate.name;
      return report;
    };
    ModelDeploymentRouteOptions options;
    options.gate = std::make_shared<AliasGate>(deployments_, judge);
    add_model_deployment_routes(routes_, deployments_, options);
    add_openai_routes(routes_, std::shared_ptr<const Deployments>(deployments_), std::make_shared<HeldStreams>());
  }
  ~LongBodies() override { deployments_->stop(); }
  ApiResponse ask(const std::string& method, const std::string& path, const std::string& body) {
    const auto recorder = std::make_shared<Recorder>();
    routes_.handle({.method = method, .path = path, .content_type = "application/json", .body = body}, recorder);
    return recorder->wait();
  }

  const std::shared_ptr<Executor> executor_ = std::make_shared<Executor>();
  std::shared_ptr<Deployments> deployments_;
  Routes routes_;  // last: its threads end first
};

TEST_F(LongBodies, AreSoonAnswered) {
  struct Right {
    const char *method, *path;
    Json body;
  };
  const Json question{{"prompt", "p"}, {"answer", "a"}};
  const std::vector<Right> right{
      {"POST", "/v1/streams/none", {{"action", "rollback"}, {"position", 1}, {"tokens", Json::array({3})}, {"text", "t"}}},
      {"POST", "/v1/load_lora_adapter", {{"lora_name", "a"}, {"lora_path", "p"}, {"load_inplace", false}}},
      {"POST", "/v1/detokenize", {{"model", "v7"}, {"tokens", Json::array({3, 4})}}},
      {"POST", "/v1/deployments", {{"name", "v8"}, {"source", "s"}}},
      {"PUT", "/v1/aliases/chat", {{"deployments", {{"v7", 1}}}, {"gate", {{"texts", Json::array({"t"})}, {"logprob_drop", 1}}}}},
      {"PUT", "/v1/aliases/chat", {{"deployments", "v7"}, {"gate", {{"questions", Json::array({question})}, {"accuracy_drop", 0.5}}}}},
  };
  for (const Right& one : right)
    expect_soon_answered(one.path, one.body, [&](const std::string& body) {
      const ApiResponse answer = ask(one.method, one.path, body);
      EXPECT_TRUE(answer.status != 405 && answer.status < 500) << one.path << " " << answer.body.substr(0, 500);
    });
}

#endif
}  // namespace
}  // namespace lockstep
