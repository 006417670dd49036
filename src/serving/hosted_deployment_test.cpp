// Deployments that clients made: each owner has its own, and with a file they are there after the process.
#include "serving/hosted_deployment.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <future>

#include "base/error.h"
#include "base/file.h"

namespace lockstep {
namespace {

class HostedDeploymentsTest : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(root_); }
  void TearDown() override { std::filesystem::remove_all(root_); }
  const std::filesystem::path root_ = std::filesystem::temp_directory_path() / fmt::format("lockstep-hosted-{}", getpid());
  const std::filesystem::path file_ = root_ / "hosted.json";
};

Deployment filled(HostedDeployments& deployments, const std::string& owner, const std::string& name) {
  return deployments.change(owner, name, [](Deployment& d) {
    d.base_model = "m";
    d.trainer_job = "j";
    d.shape = "s";
    d.transition_type = "SYNC";
    d.description = "d";
    d.min_replicas = 1, d.max_replicas = 2;
    d.identity = "one", d.checkpoint = "c", d.failed = "two", d.failure = "no room";
    d.guesses = false;
    d.add({.identity = "one", .type = HotLoad::kAnyWay, .began = 5, .ended = 7, .failure = {}});
    d.add({.identity = "two", .type = "delta", .began = 8, .ended = 9, .failure = "no room"});
  });
}

TEST_F(HostedDeploymentsTest, OwnersHaveTheirOwn) {
  LocalDeployments deployments;
  const Deployment made = filled(deployments, "ann", "d");
  EXPECT_GT(made.created, 1.7e9);
  EXPECT_EQ(made.owner + made.name, "annd");
  EXPECT_FALSE(deployments.find("bob", "d"));
  EXPECT_TRUE(deployments.all("bob").empty());
  deployments.remove("bob", "d");
  EXPECT_EQ(to_json(*deployments.find("ann", "d")).dump(), to_json(made).dump());
  // A change is of what was there; one that throws is none.
  EXPECT_EQ(deployments.change("ann", "d", [](Deployment& d) { d.description = "e"; }).created, made.created);
  EXPECT_THROW(deployments.change("ann", "d",
                                  [](Deployment& d) {
                                    d.description = "f";
                                    fail(ErrorCode::invalid_argument, "no");
                                  }),
               Error);
  EXPECT_EQ(deployments.find("ann", "d")->description, "e");
  EXPECT_EQ(deployments.find("ann", "d")->ledger.size(), 2u);
  // Of one that is there alone.
  const auto renamed = [](Deployment& d) { d.description = "g"; };
  EXPECT_EQ(deployments.change_existing("ann", "d", renamed).value().description, "g");
  EXPECT_FALSE(deployments.change_existing("ann", "none", renamed));
  EXPECT_FALSE(deployments.find("ann", "none"));
  deployments.remove("ann", "d");
  EXPECT_FALSE(deployments.find("ann", "d"));
}

TEST_F(HostedDeploymentsTest, OneOwnerLeavesOthersTheirShare) {
  LocalDeployments deployments(std::filesystem::path(), 2);
  for (int i = 0; i < 20; ++i) deployments.change("ann", std::to_string(i), [](Deployment&) {});
  try {
    deployments.change("ann", "more", [](Deployment&) {});
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::resource_exhausted);
    EXPECT_EQ(std::string(e.what()), "this API key has 20 deployments, allowed are 20 of the 1000 of this server (--key-share); delete some");
  }
  deployments.change("ann", "0", [](Deployment& d) { d.description = "changed"; });  // it is there
  deployments.change("bob", "more", [](Deployment&) {});
}

// A change holds nothing that a look-up needs, as while its file is written.
TEST_F(HostedDeploymentsTest, ALookUpWaitsForNoChange) {
  LocalDeployments deployments(file_);
  filled(deployments, "ann", "d");
  std::future<std::string> looked;  // outlives the change, which it waits for where something is wrong
  deployments.change("ann", "d", [&](Deployment& d) {
    looked = std::async(std::launch::async, [&] { return deployments.find("ann", "d")->description + deployments.all("ann").front().description; });
    EXPECT_EQ(looked.wait_for(std::chrono::seconds(5)), std::future_status::ready);
    d.description = "changed";
  });
  EXPECT_EQ(looked.get(), "dd");
  EXPECT_EQ(deployments.find("ann", "d")->description, "changed");
}

TEST_F(HostedDeploymentsTest, ThereAreNotTooMany) {
  LocalDeployments deployments(std::filesystem::path(), 100);
  for (std::size_t i = 0; i < kMostHostedDeployments; ++i) deployments.change("ann", std::to_string(i), [](Deployment&) {});
  try {
    deployments.change("bob", "more", [](Deployment&) {});
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::resource_exhausted);
  }
  deployments.change("ann", "0", [](Deployment& d) { d.description = "changed"; });
  deployments.remove("ann", "0");
  deployments.change("bob", "more", [](Deployment&) {});
}

TEST_F(HostedDeploymentsTest, ALargeOneIsRefused) {
  LocalDeployments deployments(file_);
  deployments.change("ann", "d", [](Deployment& d) { d.description = "first"; });
  EXPECT_THROW(deployments.change("ann", "d", [](Deployment& d) { d.description.assign(std::size_t{1} << 18, 'x'); }), Error);
  EXPECT_THROW(deployments.change("ann", "e", [](Deployment& d) { d.description.assign(std::size_t{1} << 18, 'x'); }), Error);
  EXPECT_EQ(deployments.find("ann", "d")->description, "first");
  EXPECT_FALSE(deployments.find("ann", "e"));
  EXPECT_EQ(LocalDeployments(file_).all("ann").size(), 1u);
}

TEST_F(HostedDeploymentsTest, ALedgerHasTheLastLoads) {
  Deployment d;
  for (int i = 0; i < 150; ++i) d.add({.identity = std::to_string(i), .type = {}, .began = 1, .ended = 2, .failure = {}});
  ASSERT_EQ(d.ledger.size(), Deployment::kMostHotLoads);
  EXPECT_EQ(d.ledger.front().identity, "50");
  EXPECT_EQ(d.ledger.back().identity, "149");
}

TEST_F(HostedDeploymentsTest, AFileKeepsThem) {
  std::string made;
  {
    LocalDeployments deployments(file_);
    made = to_json(filled(deployments, "ann", "d")).dump();
    filled(deployments, "ann", "gone");
    deployments.remove("ann", "gone");
  }
  {
    LocalDeployments deployments(file_);
    ASSERT_EQ(deployments.all("ann").size(), 1u);
    EXPECT_EQ(to_json(deployments.all("ann").front()).dump(), made);
  }
  const std::string text = read_file(file_, 1 << 20);
  for (const std::string& damaged : {text.substr(0, text.size() / 2), std::string("{}"), std::string(R"({"deployments":[{"owner":"ann"}]})")}) {
    write_file_atomic(file_, damaged);
    try {
      const LocalDeployments deployments(file_);
      ADD_FAILURE() << damaged;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::corrupt_file);
      EXPECT_NE(std::string(e.what()).find("hosted.json"), std::string::npos) << e.what();
    }
  }
}

}  // namespace
}  // namespace lockstep
