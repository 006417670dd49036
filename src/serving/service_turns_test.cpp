// Who pays for the pieces of a service: those whose rows its engine's forwards had, in steps and in commands.
#include "serving/service_turns.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

TEST(ServiceTurns, WhoHadRowsInACommandPaysForIt) {
  const auto executor = std::make_shared<Executor>();
  const auto ann = executor->account(WorkClass::live, "ann"), own = executor->account(WorkClass::live);
  const RequestOwner bob{executor->account(WorkClass::live, "bob"), true};
  std::vector<DevicePart> had;
  int steps = 0;
  std::function<void()> end_bob;
  ServiceTurns turns(
      "tiny", executor, own,
      [&](const OnExecutor&) {
        ++steps;
        end_bob();
      },
      [&](const OnExecutor&) { return std::exchange(had, {}); });
  end_bob = [&] { turns.ended(bob); };
  // What the accounts have paid once all that was posted is done.
  const auto paid = [&] {
    executor->drain();
    return std::vector<double>{ann->seconds(), bob.account->seconds(), own->seconds()};
  };
  const auto with_rows = [&](const OnExecutor&) { had.push_back({ann, 3}); };

  turns.post(with_rows);
  const std::vector<double> alone = paid();
  EXPECT_GT(alone[0], 0);
  EXPECT_EQ(alone[1] + alone[2], 0);
  turns.post([](const OnExecutor&) {});  // without rows it is the service's own
  const std::vector<double> none = paid();
  EXPECT_EQ(none[0], alone[0]);
  EXPECT_GT(none[2], 0);
  // In the turn of bob, whose only request the command ends.
  turns.post(
      [&](const OnExecutor& on) {
        with_rows(on);
        end_bob();
      },
      {&bob, 1});
  const std::vector<double> ended = paid();
  EXPECT_EQ(steps, 0);
  EXPECT_GT(ended[0], none[0]);
  EXPECT_EQ(ended[1], 0);
  // There, with a step behind it that has no rows of its own.
  turns.post(with_rows, {&bob, 1});
  const std::vector<double> stepped = paid();
  EXPECT_EQ(steps, 1);
  EXPECT_GT(stepped[0], ended[0]);
  EXPECT_EQ(stepped[1], 0);
  turns.stop(with_rows);
  const std::vector<double> stopped = paid();
  EXPECT_GT(stopped[0], stepped[0]);
  EXPECT_EQ(stopped[2], none[2]);
}

}  // namespace
}  // namespace lockstep
