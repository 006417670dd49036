#include "host/sessions.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <thread>

#include "base/error.h"

namespace lockstep {
namespace {

class SessionsTest : public testing::Test {
 protected:
  ~SessionsTest() override { std::filesystem::remove_all(folder_); }
  static ErrorCode code_of(auto&& call) {
    try {
      call();
    } catch (const Error& e) {
      return e.code();
    }
    return ErrorCode::internal;
  }
  static SessionRecord keyed(const std::string& key) {
    SessionRecord wanted;
    wanted.id = "ts-";
    wanted.idempotency_key = key;
    return wanted;
  }
  std::filesystem::path folder_ = std::filesystem::path(testing::TempDir()) / ("lockstep_sessions_" + std::to_string(::getpid()));
  std::shared_ptr<TrainingStore> store_ = std::make_shared<TrainingStore>(folder_);
};

TEST_F(SessionsTest, BelongToTheirOwnersAndAreThereAgain) {
  std::string mine;
  {
    Sessions sessions(store_, KeyLimit(100, 50));
    mine = sessions.create("ann", keyed("k"));
    EXPECT_TRUE(mine.starts_with("ts-"));
    EXPECT_EQ(sessions.again("ann", keyed("k")), mine);
    EXPECT_EQ(sessions.again("bob", keyed("k")), "");
    EXPECT_EQ(sessions.again("ann", {}), "");
    EXPECT_EQ(code_of([&] { sessions.find("bob", mine); }), ErrorCode::not_found);
    EXPECT_EQ(code_of([&] { sessions.assign("bob", mine, "p"); }), ErrorCode::not_found);
    EXPECT_FALSE(sessions.hear("bob", mine));
    EXPECT_TRUE(sessions.all("bob").empty());
    sessions.assign("ann", mine, "p");
    sessions.finish("ann", mine, "finished: success", "first");
    sessions.finish("ann", mine, "failed", "second");
    EXPECT_EQ(code_of([&] { sessions.assign("ann", mine, std::string(5000, 'p')); }), ErrorCode::invalid_argument);
  }
  Sessions sessions(store_, KeyLimit(100, 50));
  EXPECT_EQ(sessions.count(), 1u);
  EXPECT_EQ(sessions.again("ann", keyed("k")), mine);
  const SessionRecord found = sessions.find("ann", mine);
  EXPECT_EQ(found.project, "p");
  EXPECT_EQ(found.finish_detail, "first");
}

TEST_F(SessionsTest, OneThatHasFinishedTakesNoWork) {
  std::string mine;
  {
    Sessions sessions(store_, KeyLimit(100, 50));
    mine = sessions.create("ann", {});
    sessions.check_takes_work(mine);
    EXPECT_EQ(code_of([&] { sessions.finish("bob", mine, "finished: success", ""); }), ErrorCode::not_found);
    sessions.check_takes_work(mine);
    sessions.finish("ann", mine, "finished: success", "");
    EXPECT_EQ(code_of([&] { sessions.check_takes_work(mine); }), ErrorCode::invalid_argument);
    EXPECT_TRUE(sessions.hear("ann", mine));  // it is still there, to be looked at
    sessions.check_takes_work(sessions.create("ann", {}));
  }
  const Sessions again(store_, KeyLimit(100, 50));
  EXPECT_EQ(code_of([&] { again.check_takes_work(mine); }), ErrorCode::invalid_argument);
}

TEST_F(SessionsTest, OneOwnerTakesItsShare) {
  Sessions sessions(store_, KeyLimit(4, 50));
  for (int i = 0; i < 2; ++i) sessions.create("ann", {});
  EXPECT_EQ(code_of([&] { sessions.create("ann", {}); }), ErrorCode::resource_exhausted);
  sessions.create("bob", {});
}

// What is being removed is gone for its owner, who may begin anew under the same key; nothing of the new one goes with the old.
TEST_F(SessionsTest, SilentOnesAreRemovedInTwoSteps) {
  Sessions sessions(store_, KeyLimit(100, 50));
  const std::string old = sessions.create("ann", keyed("k")), kept = sessions.create("ann", {});
  std::this_thread::sleep_for(std::chrono::milliseconds(60));
  sessions.hear("ann", kept);
  const std::vector<SessionRecord> silent = sessions.silent(0.05);
  ASSERT_GE(silent.size(), 1u);
  EXPECT_FALSE(sessions.begin_removal(kept, 3600));
  ASSERT_TRUE(sessions.begin_removal(old, 0.05));
  EXPECT_EQ(code_of([&] { sessions.find("ann", old); }), ErrorCode::not_found);
  EXPECT_EQ(sessions.again("ann", keyed("k")), "");
  const std::string anew = sessions.create("ann", keyed("k"));
  EXPECT_EQ(Sessions(store_, KeyLimit(100, 50)).count(), 3u);  // killed here, it is found again
  sessions.erase(old);
  EXPECT_EQ(sessions.again("ann", keyed("k")), anew);
  EXPECT_EQ(sessions.count(), 2u);
  EXPECT_EQ(Sessions(store_, KeyLimit(100, 50)).count(), 2u);
}

}  // namespace
}  // namespace lockstep
