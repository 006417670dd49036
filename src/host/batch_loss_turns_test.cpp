// A loss over log-probabilities may take long for each datum: it is weighed for a turn's time, then others have theirs, and no bit moves.
#include <gtest/gtest.h>

#include "host/shared_prompts_test_tools.h"

namespace lockstep {
namespace {

struct Ended {
  std::vector<std::string> order, bits;
};

// A batch of pairs of one prompt, and one of another model that comes behind it; both fit into one turn.
Ended ended_with(double turn_seconds, const std::string& share) {
  TrainingBench bench({.tokens_a_step = 4096, .turn_seconds = turn_seconds});
  const std::string session = bench.session(), slow = bench.model(session, 0, 0), quick = bench.model(session, 1, 0);
  TrainingBatch pairs = answers(std::vector<std::int32_t>(12, 1), share);
  pairs.loss.name = "simpo";
  Ended ended;
  const auto submit = [&](const std::string& model, TrainingBatch batch, const std::string& name) {
    return bench.service->operations().forward_backward("me", model, 1, std::move(batch), [&ended, name](const TrainingOutput& output) {
      ended.order.push_back(name);
      std::string bits;
      for (const DatumOutput& datum : output.data) bits.append(reinterpret_cast<const char*>(datum.logprobs.data()), datum.logprobs.size() * sizeof(float));
      for (const auto& [metric, value] : output.metrics) bits += fmt::format("{}={:a};", metric, value);
      return Outcome{"bits", bits, {}, {}};
    });
  };
  std::promise<void> go = bench.hold();
  const std::string first = submit(slow, std::move(pairs), "slow"), second = submit(quick, training_batch(2, 1), "quick");
  go.set_value();
  for (const std::string& request : {first, second, bench.step(slow, 2)}) {
    const Outcome outcome = bench.result(request);
    EXPECT_FALSE(outcome.failed()) << outcome.message;
    ended.bits.push_back(outcome.bytes);
  }
  return ended;
}

TEST(BatchLossTurns, OthersHaveTurnsWhileALossIsWeighed) {
  for (const std::string share : {"forward", "backward"}) {
    SCOPED_TRACE(share);
    const Ended cut = ended_with(0, share), whole = ended_with(60, share);
    EXPECT_EQ(cut.order, (std::vector<std::string>{"quick", "slow"}));
    EXPECT_EQ(whole.order, (std::vector<std::string>{"slow", "quick"}));
    EXPECT_EQ(cut.bits, whole.bits);
  }
}

}  // namespace
}  // namespace lockstep
