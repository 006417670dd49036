// Deployments in a fleet's store: each replica sees what another made, those of other channels are not seen.
#include "fleet/channel_deployments.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/error.h"

namespace lockstep {
namespace {

class ChannelDeploymentsTest : public testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove_all(root_); }
  std::shared_ptr<Store> store() const { return open_store(root_.string(), true); }
  const std::filesystem::path root_ = std::filesystem::temp_directory_path() / fmt::format("lockstep-channel-deployments-{}", getpid());
};

TEST_F(ChannelDeploymentsTest, EveryReplicaHasThem) {
  ChannelDeployments a(store(), "chat"), b(store(), "chat"), other(store(), "chat2");
  EXPECT_FALSE(a.find("ann", "d"));
  EXPECT_TRUE(a.all("ann").empty());
  a.remove("ann", "d");  // there is none
  const Deployment made = a.change("ann", "d", [](Deployment& d) {
    d.base_model = "m";
    d.add({.identity = "one", .type = HotLoad::kAnyWay, .began = 5, .ended = 0, .failure = {}});
  });
  ASSERT_TRUE(b.find("ann", "d"));
  EXPECT_EQ(to_json(*b.find("ann", "d")).dump(), to_json(made).dump());
  EXPECT_FALSE(b.find("bob", "d"));
  EXPECT_FALSE(other.find("ann", "d"));
  EXPECT_TRUE(other.all("ann").empty());
  b.change("ann", "d", [](Deployment& d) { d.ledger.back().ended = 6; });
  b.change("ann", "e", [](Deployment& d) { d.created = 1; });
  b.change("bob", "d", [](Deployment&) {});
  const std::vector<Deployment> all = a.all("ann");
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].name, "e");  // it is the oldest
  EXPECT_EQ(all[1].ledger.back().ended, 6);
  EXPECT_EQ(all[1].created, made.created);
  b.remove("ann", "d");
  EXPECT_FALSE(a.change_existing("ann", "d", [](Deployment&) {}));
  EXPECT_FALSE(a.find("ann", "d"));
  EXPECT_TRUE(a.find("bob", "d"));
}

TEST_F(ChannelDeploymentsTest, OneOwnerLeavesOthersTheirShare) {
  ChannelDeployments deployments(store(), "chat", 1);
  for (int i = 0; i < 10; ++i) deployments.change("ann", std::to_string(i), [](Deployment&) {});
  EXPECT_THROW(deployments.change("ann", "more", [](Deployment&) {}), Error);
  deployments.change("ann", "0", [](Deployment& d) { d.description = "changed"; });  // it is there
  deployments.change("bob", "more", [](Deployment&) {});
  EXPECT_EQ(deployments.all("ann").size(), 10u);
}

TEST_F(ChannelDeploymentsTest, ADamagedOneIsMadeAgainAndALargeOneIsRefused) {
  ChannelDeployments deployments(store(), "chat");
  deployments.change("ann", "d", [](Deployment& d) { d.description = "first"; });
  const std::shared_ptr<Store> own = store();
  ASSERT_EQ(own->records("deployments").size(), 1u);
  const std::string record = own->records("deployments").front();
  const std::string text = *own->read_record("deployments", record);
  own->put_record("deployments", record, text.substr(0, text.size() / 2));
  EXPECT_FALSE(deployments.find("ann", "d"));
  EXPECT_TRUE(deployments.all("ann").empty());
  deployments.change("ann", "d", [](Deployment& d) { d.description = "second"; });
  EXPECT_EQ(deployments.find("ann", "d")->description, "second");
  EXPECT_THROW(deployments.change("ann", "d", [](Deployment& d) { d.description.assign(2 * kMostRecordBytes, 'x'); }), Error);
  EXPECT_EQ(deployments.find("ann", "d")->description, "second");
}

}  // namespace
}  // namespace lockstep
