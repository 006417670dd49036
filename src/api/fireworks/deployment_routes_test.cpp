// Deployments and ledgers of hot loads on a server without a trainer.
#include "api/fireworks/deployment_routes.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "api/api_test_tools.h"
#include "api/fireworks/fleet_routes.h"
#include "api/fireworks/hot_load_ledger.h"
#include "base/error.h"
#include "serving/loading.h"

namespace lockstep {
namespace {

// Is ready when it is told so.
class LedgerFleet : public FleetPort {
 public:
  std::vector<FleetMember> members() override {
    const std::lock_guard lock(mutex_);
    const bool ready = now_.ready || arrived_;
    return {FleetMember{
        .name = "r0", .stage = ready ? "ready" : "downloading", .current_identity = ready ? identity_ : "", .target_identity = identity_, .serves = true}};
  }
  FleetSignal load(const std::string& identity, const std::string& transition) override {
    if (identity == "absent") fail(ErrorCode::not_found, "there is no snapshot 'absent'");
    const std::lock_guard lock(mutex_);
    identity_ = identity;
    transitions_.push_back(transition);
    return {identity, transitions_.size()};
  }
  bool has_delivery(const std::string&) override { return false; }
  void take_in(const FleetDelivery&) override {}
  FleetProgress progress(const FleetSignal&) override {
    const std::lock_guard lock(mutex_);
    return now_;
  }
  std::string describe() const override { return "store/chat"; }

  void tell(FleetProgress now) {
    const std::lock_guard lock(mutex_);
    now_ = std::move(now);
    arrived_ = false;
  }
  // Its replica has the snapshot, which nobody who waits was told yet.
  void arrive() {
    const std::lock_guard lock(mutex_);
    arrived_ = true;
  }
  std::vector<std::string> transitions() {
    const std::lock_guard lock(mutex_);
    return transitions_;
  }

 private:
  std::mutex mutex_;
  std::string identity_;
  std::vector<std::string> transitions_;
  FleetProgress now_;
  bool arrived_ = false;
};

// Deletes a deployment, where it is told so, in the moment before its change: as another client may after a look-up.
class VanishingDeployments : public LocalDeployments {
 public:
  std::atomic<bool> vanish = false;

 protected:
  std::optional<Deployment> changed(const std::string& owner, const std::string& name, const Change& change, bool makes) override {
    if (vanish) remove(owner, name);
    return LocalDeployments::changed(owner, name, change, makes);
  }
};

class DeploymentRoutesTest : public testing::Test {
 protected:
  static const std::shared_ptr<const Deployments>& models() {
    static const std::shared_ptr<const Deployments> one = [] {
      ServingModel model = serving_model(open_model({.model = LOCKSTEP_SOURCE_DIR "/models/countdown-glm", .threads = 1}));
      model.name = "m";
      return only_deployment(std::make_shared<GenerationService>(std::move(model), ServingOptions{}));
    }();
    return one;
  }
  void SetUp() override {
    add_fleet_routes(routes_, fleet_, records_);
    add_deployment_routes(routes_, replica_deployments(records_, fleet_, models()));
  }
  std::shared_ptr<Recorder> call(const std::string& method, const std::string& path, const std::string& body = {}, const std::string& query = {},
                                 const std::string& key = "ann") {
    auto recorder = std::make_shared<Recorder>();
    ApiRequest request{.method = method, .path = path, .query = query, .content_type = "application/json", .body = body};
    request.headers.emplace_back("x-api-key", key);
    request.headers.emplace_back("fireworks-deployment", "accounts/local/deployments/d");
    routes_.handle(std::move(request), recorder);
    return recorder;
  }
  std::shared_ptr<Recorder> make(const std::string& id, const std::string& fields, const std::string& more = {}) {
    return call("POST", kAll, fields, "deploymentId=" + id + more);
  }
  std::shared_ptr<Recorder> load(const std::string& identity, const std::string& key = "ann") {
    return call("POST", "/hot_load/v1/models/hot_load", R"({"identity":")" + identity + R"("})", {}, key);
  }
  Json ledger() { return call("GET", kOne + "/ledger")->json().at("entries"); }
  static std::string owner() {
    ApiRequest request;
    request.headers.emplace_back("x-api-key", "ann");
    return owner_of(request, {});
  }

  const std::string kAll = "/v1/accounts/local/deployments", kOne = kAll + "/d";
  const std::shared_ptr<LedgerFleet> fleet_ = std::make_shared<LedgerFleet>();
  const std::shared_ptr<VanishingDeployments> records_ = std::make_shared<VanishingDeployments>();
  Routes routes_;
};

TEST_F(DeploymentRoutesTest, OneIsMadeListedChangedAndDeleted) {
  EXPECT_EQ(call("GET", "/v1/accounts", {}, "pageSize=2")->json(), Json::parse(R"({"accounts":[{"name":"accounts/local"}]})"));
  EXPECT_EQ(call("GET", kOne)->wait().status, 404);
  const Json made = make("d", R"({"baseModel":"m","hotLoadTransitionType":"SYNC","minReplicaCount":1,"enableHotLoad":true})")->json();
  EXPECT_EQ(made.at("name"), "accounts/local/deployments/d");
  EXPECT_EQ(made.at("state"), "READY");
  EXPECT_EQ(made.at("hotLoadTransitionType"), "SYNC");
  EXPECT_EQ(call("GET", kOne)->json(), made);
  EXPECT_EQ(make("d", R"({"baseModel":"m"})")->wait().status, 409);
  EXPECT_EQ(make("e", R"({"baseModel":"accounts/x/models/m"})")->wait().status, 200);
  EXPECT_EQ(make("f", "{}")->json().at("baseModel"), "m");
  // Of another key they are not there.
  EXPECT_EQ(call("GET", kOne, {}, {}, "bob")->wait().status, 404);
  EXPECT_TRUE(call("GET", kAll, {}, {}, "bob")->json().at("deployments").empty());
  EXPECT_EQ(call("DELETE", kOne, {}, {}, "bob")->wait().status, 404);
  const Json page = call("GET", kAll, {}, "pageSize=2")->json();
  EXPECT_EQ(page.at("deployments").size(), 2u);
  EXPECT_EQ(call("GET", kAll, {}, "pageToken=" + page.at("nextPageToken").get<std::string>())->json().at("deployments").size(), 1u);

  EXPECT_EQ(call("PATCH", kOne, R"({"description":"now","minReplicaCount":0})")->json().at("description"), "now");
  EXPECT_EQ(call("PATCH", kOne, R"({"description":"lost","hotLoadTrainerJob":"j"})", "updateMask=hot_load_trainer_job")->json().at("hotLoadTrainerJob"), "j");
  const Json now = call("GET", kOne)->json();
  EXPECT_EQ(now.at("description"), "now");
  EXPECT_EQ(now.at("minReplicaCount"), 0);
  EXPECT_EQ(now.at("createTime"), made.at("createTime"));
  EXPECT_EQ(call("DELETE", kOne, {}, "hard=true&ignoreChecks=true")->wait().status, 200);
  EXPECT_EQ(call("GET", kOne)->wait().status, 404);
}

TEST_F(DeploymentRoutesTest, WhatHasNoEffectIsRefused) {
  const auto refused = [](const std::shared_ptr<Recorder>& one, int status, const std::string& word) {
    EXPECT_EQ(one->wait().status, status) << one->wait().body;
    EXPECT_NE(one->wait().body.find(word), std::string::npos) << one->wait().body;
  };
  refused(make("d", R"({"baseModel":"n"})"), 404, "baseModel is 'n', allowed are m");
  refused(make("d", R"({"baseModle":"m"})"), 400, "baseModle");
  refused(make("d", R"({"minReplicaCount":null})"), 422, "minReplicaCount");
  refused(make("", "{}"), 422, "deploymentId");
  refused(call("POST", kAll, "{}", "deploymentId=d&unknown=1"), 400, "unknown");
  refused(make("d", R"({"hotLoadTransitionType":"SINC"})"), 422, "hotLoadTransitionType is 'SINC', allowed are SYNC, ASYNC; did you mean 'SYNC'?");
  const std::string long_text(4097, 'x');
  for (const char* field : {"description", "deploymentShape", "hotLoadTrainerJob", "baseModel"})
    refused(make("d", Json{{field, field == std::string("baseModel") ? "accounts/" + long_text + "/models/m" : long_text}}.dump()), 400, field);
  refused(make(long_text, "{}"), 400, "deploymentId");
  EXPECT_GE(make("d", "{}", "&disableSpeculativeDecoding=true")->wait().status, 400);
  EXPECT_EQ(make("d", "{}", "&disableSpeculativeDecoding=false")->wait().status, 200);
  refused(call("PATCH", kOne, "{}", "updateMask=nothing"), 422, "updateMask");
  refused(call("PATCH", kOne, Json{{"description", long_text}}.dump()), 400, "description");
  EXPECT_FALSE(call("PATCH", kOne, R"({"hotLoadTransitionType":"HOT_LOAD_TRANSITION_TYPE_UNSPECIFIED"})")->json().contains("hotLoadTransitionType"));
}

TEST_F(DeploymentRoutesTest, ItsLedgerHasTheFleetsLoads) {
  make("d", R"({"hotLoadTransitionType":"SYNC"})")->wait();
  EXPECT_TRUE(ledger().empty());
  const auto first = load("one");
  for (int i = 0; i < 3000 && ledger().empty(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  Json entries = ledger();
  ASSERT_EQ(entries.size(), 1u);
  EXPECT_EQ(entries[0].at("identity"), "one");
  EXPECT_EQ(entries[0].at("state"), "LOADING");
  EXPECT_FALSE(entries[0].contains("endTime"));
  EXPECT_FALSE(first->told());
  fleet_->arrive();
  entries = ledger();
  EXPECT_EQ(entries[0].at("state"), "READY");
  EXPECT_FALSE(entries[0].contains("endTime"));
  fleet_->tell({.ready = true, .ended = true, .error = {}});
  EXPECT_EQ(first->json().at("ready"), true);
  entries = ledger();
  ASSERT_EQ(entries.size(), 1u);
  EXPECT_EQ(entries[0].at("state"), "READY");
  EXPECT_LE(entries[0].at("createTime").get<std::string>(), entries[0].at("endTime").get<std::string>());
  ASSERT_EQ(entries[0].at("replicas").size(), 1u);
  EXPECT_EQ(entries[0].at("replicas")[0].at("name"), "r0");
  EXPECT_FALSE(entries[0].contains("type"));  // each replica took a way of its own
  EXPECT_EQ(fleet_->transitions(), std::vector<std::string>{"staged"});
  // Again: nothing happens. Of another key, and without a deployment, it is a load that is in no ledger of this one.
  load("one")->wait();
  load("other", "bob")->wait();
  EXPECT_EQ(ledger().size(), 1u);
  EXPECT_EQ(fleet_->transitions(), (std::vector<std::string>{"staged", "staged", ""}));
  // What fails says why, and the next load has an entry of its own.
  EXPECT_EQ(load("absent")->wait().status, 404);
  fleet_->tell({.ready = false, .ended = true, .error = "replica r0: it has no room"});
  EXPECT_EQ(load("two")->json().at("message"), "replica r0: it has no room");
  fleet_->tell({.ready = true, .ended = true, .error = {}});
  EXPECT_EQ(load("two")->json().at("ready"), true);
  entries = ledger();
  ASSERT_EQ(entries.size(), 4u);
  EXPECT_EQ(entries[1].at("state"), "FAILED");
  EXPECT_NE(entries[1].at("error").get<std::string>().find("no snapshot 'absent'"), std::string::npos);
  EXPECT_EQ(entries[2].at("error"), "replica r0: it has no room");
  EXPECT_EQ(entries[3].at("state"), "READY");
  EXPECT_EQ(entries[3].at("identity"), "two");
  EXPECT_EQ(call("DELETE", kOne + "/ledger")->wait().status, 200);
  EXPECT_TRUE(ledger().empty());
}

TEST_F(DeploymentRoutesTest, ALoadThatAnotherOvertookIsEnded) {
  make("d", "{}")->wait();
  begin_hot_load(*records_, owner(), "accounts/local/deployments/d", "one");
  EXPECT_EQ(ledger()[0].at("state"), "LOADING");
  fleet_->tell({.ready = true, .ended = true, .error = {}});
  load("two")->wait();
  const Json entries = ledger();
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_EQ(entries[0].at("state"), "FAILED");
  EXPECT_NE(entries[0].at("error").get<std::string>().find("another load came"), std::string::npos);
  EXPECT_EQ(entries[1].at("state"), "READY");
}

TEST_F(DeploymentRoutesTest, WhatIsDeletedBeforeItsChangeIsNotMadeAgain) {
  fleet_->tell({.ready = true, .ended = true, .error = {}});
  const std::function<std::shared_ptr<Recorder>()> changes[] = {[&] { return call("PATCH", kOne, R"({"description":"late"})"); },
                                                                [&] { return call("DELETE", kOne + "/ledger"); }, [&] { return load("one"); }};
  for (const auto& change : changes) {
    records_->vanish = false;
    make("d", "{}")->wait();
    records_->vanish = true;
    const int status = change()->wait().status;
    EXPECT_EQ(status, &change == &changes[2] ? 200 : 404);  // a load without a deployment is one all the same
    EXPECT_EQ(call("GET", kOne)->wait().status, 404);
  }
}

TEST_F(DeploymentRoutesTest, ALoadThatEndsAfterItsDeploymentMakesNone) {
  make("d", "{}")->wait();
  const auto first = load("one");
  for (int i = 0; i < 3000 && ledger().empty(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(call("DELETE", kOne)->wait().status, 200);
  fleet_->tell({.ready = true, .ended = true, .error = {}});
  EXPECT_EQ(first->json().at("ready"), true);
  EXPECT_EQ(call("GET", kOne)->wait().status, 404);
}

}  // namespace
}  // namespace lockstep
