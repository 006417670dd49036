// The gate of an alias over HTTP: it moves when all that is new passed, and stays otherwise; reports are told; what is no gate is refused by its field.
#include "api/openai/alias_gate.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <future>

#include "api/api_test_tools.h"
#include "api/openai/channel_gate.h"
#include "api/openai/model_deployment_routes.h"
#include "base/file.h"
#include "serving/loading.h"

namespace lockstep {
namespace {

class AliasGateTest : public testing::Test {
 protected:
  AliasGateTest() {
    deployments_ = std::make_shared<Deployments>(std::make_shared<TrafficTable>(), opened("v7"));
    deployments_->add(opened("v8"));
    deployments_->route("chat", {{"v7", 1}});
    const auto judge = [this](const GateSpec& spec, const GateSide& candidate, const std::optional<GateSide>& live, const StopToken&) {
      GateReport report;
      report.candidate = candidate.name;
      if (live) report.live = live->name;
      asked_ = spec;
      side_ = candidate;
      ++runs_;
      if (during_) during_();
      report.checks.push_back({"accuracy", why_, {{"figure", 7}}});
      return report;
    };
    gate_ = std::make_shared<AliasGate>(deployments_, judge);
    ModelDeploymentRouteOptions options;
    options.gate = gate_;
    add_model_deployment_routes(routes_, deployments_, options);
  }
  ~AliasGateTest() override { deployments_->stop(); }
  ModelDeployment opened(const std::string& name, Follows follows = Follows::no) {
    ServingModel model = serving_model(open_model({.model = LOCKSTEP_SOURCE_DIR "/models/countdown-glm", .profile = "cpu-bf16w", .threads = 1}));
    model.name = name;
    model.executor = executor_;
    ModelDeployment made;
    made.name = name;
    made.follows = follows;
    made.service = std::make_shared<GenerationService>(std::move(model), ServingOptions{});
    return made;
  }
  std::shared_ptr<Recorder> ask(const std::string& method, const std::string& path, const std::string& body = {}) {
    const auto recorder = std::make_shared<Recorder>();
    routes_.handle({.method = method, .path = path, .content_type = "application/json", .body = body}, recorder);
    return recorder;
  }
  std::string leads_where() const { return shares_text(deployments_->traffic().find("chat")->shares); }

  const std::shared_ptr<Executor> executor_ = std::make_shared<Executor>();
  std::shared_ptr<Deployments> deployments_;
  std::shared_ptr<AliasGate> gate_;
  std::string why_;
  std::function<void()> during_;
  GateSpec asked_;
  GateSide side_;
  int runs_ = 0;
  Routes routes_;  // last: its threads end first
};

constexpr const char kGated[] =
    R"({"deployments":{"v7":1,"v8":3},"gate":{"environment":"countdown","problems":5,"accuracy_drop":0.5,"kl_limit":0.25,"speed_drop":0.75,"texts":["a"]}})";

TEST_F(AliasGateTest, AnAliasMovesWhenItPassed) {
  const Json moved = ask("PUT", "/v1/aliases/chat", kGated)->json();
  EXPECT_EQ(moved.at("deployments"), Json::parse(R"({"v7":1,"v8":3})"));
  const Json report = moved.at("gates").at(0);
  EXPECT_EQ(report.at("id"), "gate-1");
  EXPECT_EQ(report.at("deployment"), "v8");
  EXPECT_EQ(report.at("live"), "v7");
  EXPECT_EQ(report.at("checks").at(0).at("figure"), 7);
  EXPECT_EQ(moved.at("gates").size(), 1u);  // v7 was live
  EXPECT_EQ(asked_.environment, "countdown");
  EXPECT_EQ(asked_.problems, 5);
  EXPECT_EQ(asked_.accuracy_drop, 0.5);
  EXPECT_EQ(asked_.kl_limit, 0.25);
  EXPECT_EQ(asked_.speed_drop, 0.75);
  EXPECT_EQ(asked_.texts, std::vector<std::string>{"a"});
  EXPECT_EQ(ask("GET", "/v1/gates/gate-1")->json().at("alias"), "chat");
  EXPECT_EQ(ask("GET", "/v1/gates")->json().at("data").size(), 1u);
  EXPECT_EQ(ask("GET", "/v1/gates/gate-2")->wait().status, 404);
  // What is live already is not asked again.
  EXPECT_TRUE(ask("PUT", "/v1/aliases/chat", kGated)->json().at("gates").empty());
}

TEST_F(AliasGateTest, AnAliasStaysWhenItFailed) {
  why_ = "'v8' is worse";
  const std::shared_ptr<Recorder> failed = ask("PUT", "/v1/aliases/chat", kGated);
  EXPECT_EQ(failed->wait().status, 409);
  EXPECT_NE(failed->wait().body.find("'chat' stays as it is: 'v8' is worse (GET /v1/gates/gate-1 has the figures)"), std::string::npos) << failed->wait().body;
  EXPECT_EQ(failed->json().at("error").at("code"), "gate_failed");
  EXPECT_EQ(leads_where(), "v7:1");
  EXPECT_EQ(ask("GET", "/v1/gates/gate-1")->json().at("reason"), "'v8' is worse");
  // A new alias does not come to be.
  EXPECT_EQ(ask("PUT", "/v1/aliases/other", kGated)->wait().status, 409);
  EXPECT_FALSE(deployments_->traffic().has("other"));
}

TEST_F(AliasGateTest, ForceMovesItAllTheSameAndTheReportSaysSo) {
  Json body = Json::parse(kGated);
  body["force"] = true;
  why_ = "'v8' is worse";
  const std::shared_ptr<Recorder> moved = ask("PUT", "/v1/aliases/chat", body.dump());
  EXPECT_EQ(moved->wait().status, 200) << moved->wait().body;
  EXPECT_EQ(leads_where(), "v7:1,v8:3");
  for (const Json& report : {moved->json().at("gates").at(0), ask("GET", "/v1/gates/gate-1")->json()}) {
    EXPECT_EQ(report.at("passed"), false);
    EXPECT_EQ(report.at("forced"), true);
    EXPECT_EQ(report.at("reason"), "'v8' is worse");
  }
  // Nothing was overruled where it passed; and without the word it holds.
  why_.clear();
  deployments_->route("chat", {{"v7", 1}});
  EXPECT_EQ(ask("PUT", "/v1/aliases/chat", body.dump())->json().at("gates").at(0).at("forced"), false);
  why_ = "'v8' is worse";
  deployments_->route("chat", {{"v7", 1}});
  body["force"] = false;
  EXPECT_EQ(ask("PUT", "/v1/aliases/chat", body.dump())->wait().status, 409);
  EXPECT_EQ(ask("GET", "/v1/gates/gate-3")->json().at("forced"), false);
  EXPECT_EQ(leads_where(), "v7:1");
  for (const char* bad : {R"({"deployments":"v8","force":true})", R"({"deployments":"v8","gate":{"texts":["a"]},"force":1})"}) {
    const std::shared_ptr<Recorder> told = ask("PUT", "/v1/aliases/chat", bad);
    EXPECT_EQ(told->wait().status, 400) << bad;
    EXPECT_EQ(told->json().at("error").at("param"), "force") << told->wait().body;
  }
  EXPECT_EQ(leads_where(), "v7:1");
}

TEST_F(AliasGateTest, AReportIsForcedOnlyWhereTheAliasMoved) {
  Json body = Json::parse(kGated);
  body["force"] = true;
  why_ = "'v8' is worse";
  during_ = [this] { deployments_->route("chat", {{"v7", 2}, {"v8", 1}}); };
  EXPECT_EQ(ask("PUT", "/v1/aliases/chat", body.dump())->wait().status, 409);
  EXPECT_EQ(leads_where(), "v7:2,v8:1");
  const Json report = ask("GET", "/v1/gates/gate-1")->json();
  EXPECT_EQ(report.at("passed"), false);
  EXPECT_EQ(report.at("forced"), false);
}

TEST_F(AliasGateTest, AGateStaysWhereAChannelIsFollowed) {
  const auto gated = [&] { return ask("GET", "/v1/aliases")->json().at("data").at(0).at("gated").get<bool>(); };
  // Nothing comes to these by a channel.
  EXPECT_EQ(ask("PUT", "/v1/aliases/chat", kGated)->wait().status, 200);
  EXPECT_FALSE(gated());
  deployments_->add(opened("v9", Follows::beside));
  EXPECT_EQ(ask("PUT", "/v1/aliases/chat", R"({"deployments":"v9","gate":{"texts":["b"]}})")->json().at("gated"), true);
  // Moved by hand it has the gate still, also where it leads elsewhere: a rollback would lead it back.
  EXPECT_EQ(ask("PUT", "/v1/aliases/chat", R"({"deployments":"v7"})")->json().at("gated"), true);
  const std::shared_ptr<VersionGate> of_v9 = channel_gate(gate_, "v9"), of_v8 = channel_gate(gate_, "v8");
  EXPECT_NE(of_v9->terms(), "");
  EXPECT_EQ(of_v8->terms(), "");
  // Null takes it away; none that it has not passed is needed for that.
  EXPECT_EQ(ask("PUT", "/v1/aliases/chat", R"({"deployments":"v7","gate":null})")->json().at("gated"), false);
  EXPECT_EQ(of_v9->terms(), "");
  // Weights that are written over the live ones cannot be asked before.
  deployments_->add(opened("v10", Follows::in_place));
  const int before = runs_;
  const std::shared_ptr<Recorder> refused = ask("PUT", "/v1/aliases/chat", R"({"deployments":"v10","gate":{"texts":["b"]}})");
  EXPECT_EQ(refused->wait().status, 400);
  EXPECT_NE(refused->wait().body.find("'chat' cannot have a gate and lead to 'v10', which follows a channel: --swap-memory single"), std::string::npos)
      << refused->wait().body;
  EXPECT_EQ(runs_, before);
  EXPECT_EQ(leads_where(), "v7:1");
}

TEST_F(AliasGateTest, WhatAChannelBringsPassesTheGatesOfItsAliases) {
  deployments_->add(opened("v9", Follows::beside));
  EXPECT_EQ(ask("PUT", "/v1/aliases/chat", R"({"deployments":{"v7":1,"v9":9},"gate":{"texts":["b"]}})")->wait().status, 200);
  const std::shared_ptr<VersionGate> gate = channel_gate(gate_, "v9");
  const std::string terms = gate->terms(), id = std::string(64, 'e');
  const auto weights = std::make_shared<const WeightSet>();
  EXPECT_EQ(gate->refuses(id, weights, nullptr, {}), "");
  EXPECT_EQ(side_.name, "v9@eeeeeeeeeeee");
  EXPECT_EQ(side_.snapshot, id);
  EXPECT_EQ(side_.weights, weights);
  EXPECT_EQ(asked_.texts, std::vector<std::string>{"b"});
  const Json passed = ask("GET", "/v1/gates/gate-2")->json();
  EXPECT_EQ(passed.at("live"), "v9");  // it has the greatest share, and is compared with what it has
  EXPECT_EQ(passed.at("alias"), "chat");
  why_ = "it is worse";
  EXPECT_EQ(gate->refuses(id, weights, nullptr, {}),
            "'v9' keeps the weights that it has, for the gate of 'chat': it is worse (GET /v1/gates/gate-3 has the figures)");
  bool swapped = false;
  EXPECT_TRUE(gate->go_live(terms, [&] { swapped = true; }));
  EXPECT_TRUE(std::exchange(swapped, false));
  // Another alias leads to it meanwhile, with a gate of its own: it is asked as well.
  why_.clear();
  EXPECT_EQ(ask("PUT", "/v1/aliases/other", R"({"deployments":"v9","gate":{"texts":["c"]}})")->wait().status, 200);
  EXPECT_FALSE(gate->go_live(terms, [&] { swapped = true; }));
  EXPECT_FALSE(swapped);
  runs_ = 0;
  EXPECT_EQ(gate->refuses(id, weights, nullptr, {}), "");
  EXPECT_EQ(runs_, 2);
}

TEST_F(AliasGateTest, AnotherSnapshotMeanwhileIsNotWhatPassed) {
  deployments_->add(opened("v9", Follows::beside));
  during_ = [this] {
    const std::shared_ptr<GenerationService> service = deployments_->list().back().service;
    const OpenedModel other = open_model({.model = LOCKSTEP_SOURCE_DIR "/models/countdown-glm", .profile = "cpu-bf16w", .threads = 1});
    service->weights().swap([&](const OnExecutor&) -> ServedWeights::Swapped { return {other.weight_set(5)}; }, {5, std::string(64, 'b'), "b"},
                            InFlight::go_on);
  };
  const std::shared_ptr<Recorder> told = ask("PUT", "/v1/aliases/chat", R"({"deployments":"v9","gate":{"texts":["b"]}})");
  EXPECT_EQ(told->wait().status, 409);
  EXPECT_NE(told->wait().body.find("went over to another snapshot"), std::string::npos) << told->wait().body;
  EXPECT_EQ(leads_where(), "v7:1");
}

TEST_F(AliasGateTest, WhatChangedMeanwhileIsNotOverwritten) {
  during_ = [this] { deployments_->route("chat", {{"v7", 2}, {"v8", 1}}); };
  EXPECT_EQ(ask("PUT", "/v1/aliases/chat", kGated)->wait().status, 409);
  EXPECT_EQ(leads_where(), "v7:2,v8:1");
  // Another deployment by that name was not judged.
  deployments_->route("chat", {{"v7", 1}});
  during_ = [this] {
    deployments_->remove("v8");
    deployments_->add(opened("v8"));
  };
  const std::shared_ptr<Recorder> other = ask("PUT", "/v1/aliases/chat", kGated);
  EXPECT_EQ(other->wait().status, 409);
  EXPECT_NE(other->wait().body.find("was deleted while the gate"), std::string::npos) << other->wait().body;
  EXPECT_EQ(leads_where(), "v7:1");
}

TEST_F(AliasGateTest, OneGateAtATimeAndOtherChangesGoOn) {
  std::promise<void> began, may_end;
  std::shared_future<void> end = may_end.get_future().share();
  during_ = [&] {
    began.set_value();
    end.wait();
  };
  const std::shared_ptr<Recorder> first = ask("PUT", "/v1/aliases/chat", kGated);
  began.get_future().wait();
  EXPECT_EQ(ask("PUT", "/v1/aliases/other", kGated)->wait().status, 429);
  EXPECT_EQ(ask("PUT", "/v1/aliases/other", R"({"deployments":"v7"})")->wait().status, 200);
  EXPECT_FALSE(first->told());
  may_end.set_value();
  EXPECT_EQ(first->wait().status, 200);
}

TEST_F(AliasGateTest, WhatIsNoGateIsRefusedByItsField) {
  const std::string deep = std::string(100, '[') + std::string(100, ']');
  for (const auto& [gate, words] : std::vector<std::pair<std::string, std::string>>{
           {"7", "gate"},
           {"{}", "asks nothing"},
           {R"({"problems":5})", "asks nothing"},
           {R"({"environment":"countdown","problem":5})", "did you mean"},
           {R"({"environment":"countdown","problems":0})", "gate.problems"},
           {R"({"environment":"countdown","problems":100000000000})", "gate.problems"},
           {R"({"environment":"countdown","max_tokens":-1})", "gate.max_tokens"},
           {R"({"environment":"countdown","accuracy_drop":2})", "gate.accuracy_drop"},
           {R"({"environment":"countdown","accuracy_drop":"0"})", "gate.accuracy_drop"},
           {R"({"environment":"countdown","questions":[{"prompt":"a","answer":"b"}]})", "gate.environment"},
           {R"({"questions":[]})", "gate.questions"},
           {R"({"questions":[{"prompt":"a"}]})", "gate.questions[0].answer"},
           {R"({"questions":[{"prompt":"","answer":"b"}]})", "gate.questions[0].prompt"},
           {R"({"questions":[{"prompt":"a","answer":"b","c":1}]})", "gate.questions[0].c"},
           {R"({"questions":[7]})", "gate.questions[0]"},
           {R"({"questions":)" + deep + "}", "deeper"},
           {R"({"texts":[")" + std::string(70'000, 'a') + R"("]})", "gate.texts[0]"},
           {R"({"texts":["a"],"accuracy_floor":0.5})", "gate.accuracy_floor"},
           {R"({"texts":["a"],"kl_limit":0.5})", "gate.kl_limit"},
           {R"({"texts":["a"],"speed_drop":0.5})", "gate.speed_drop"},
           {R"({"environment":"countdown","kl_limit":-1})", "gate.kl_limit"},
           {R"({"environment":"countdown","speed_drop":1.5})", "gate.speed_drop"},
           {R"({"texts":["a"],"logprob_drop":-1})", "gate.logprob_drop"},
           {R"({"texts":["a"],"company":1000})", "gate.company"},
       }) {
    const std::shared_ptr<Recorder> told = ask("PUT", "/v1/aliases/chat", R"({"deployments":"v8","gate":)" + gate + "}");
    EXPECT_EQ(told->wait().status, 400) << gate.substr(0, 100);
    EXPECT_NE(told->wait().body.find(words), std::string::npos) << told->wait().body;
  }
  // A number is a number, and nothing else is taken for one that is absent.
  for (const char* field : {"problems", "max_tokens", "accuracy_drop", "accuracy_floor", "logprob_drop", "kl_limit", "speed_drop", "company"})
    for (const char* value : {"null", "true", "\"1\"", "[1]", "1e400", "NaN"}) {
      const std::string gate = fmt::format(R"({{"environment":"countdown","{}":{}}})", field, value);
      const std::shared_ptr<Recorder> told = ask("PUT", "/v1/aliases/chat", R"({"deployments":"v8","gate":)" + gate + "}");
      EXPECT_EQ(told->wait().status, 400) << gate;
      const bool parsed = std::string_view(value) != "1e400" && std::string_view(value) != "NaN";  // the others are no JSON
      if (parsed) {
        EXPECT_NE(told->wait().body.find(fmt::format("gate.{}", field)), std::string::npos) << told->wait().body;
      }
    }
  EXPECT_EQ(ask("PUT", "/v1/aliases/chat", R"({"deployments":"v9","gate":{"texts":["a"]}})")->wait().status, 404);
  EXPECT_EQ(leads_where(), "v7:1");
  EXPECT_TRUE(ask("GET", "/v1/gates")->json().at("data").empty());
}

TEST(GateReportsTest, TheLastOnesAreThereAgain) {
  const std::filesystem::path file = std::filesystem::temp_directory_path() / fmt::format("lockstep-gates-{}.json", getpid());
  std::filesystem::remove(file);
  {
    GateReports reports(file);
    for (int i = 0; i < 103; ++i) reports.add({{"number", i}, {"forced", false}});
    reports.overruled("gate-4");
    reports.overruled("gate-3");  // it has gone
  }
  {
    GateReports again(file);
    EXPECT_EQ(again.list().size(), GateReports::kMost);
    EXPECT_EQ(again.list().front().at("number"), 102);
    EXPECT_FALSE(again.find("gate-3"));
    EXPECT_EQ(again.find("gate-4")->at("number"), 3);
    EXPECT_EQ(again.find("gate-4")->at("forced"), true);
    EXPECT_EQ(again.find("gate-5")->at("forced"), false);
    EXPECT_EQ(again.add({{"number", 200}}), "gate-104");
  }
  const std::string whole = read_file(file, 1 << 20);
  for (const std::string& text : {std::string(), whole.substr(0, whole.size() / 2), std::string("[]"), std::string(R"({"next":0,"reports":[]})"),
                                  std::string(R"({"next":1,"reports":[7]})"), std::string(R"({"next":1,"reports":{"a":{"id":"x"}}})")}) {
    write_file_atomic(file, text);
    try {
      const GateReports damaged(file);
      ADD_FAILURE() << text;
    } catch (const Error& e) {
      EXPECT_NE(e.message().find("or delete it"), std::string::npos) << e.message();
    }
  }
  std::filesystem::remove(file);
}

}  // namespace
}  // namespace lockstep
