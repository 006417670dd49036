// Which buffers a gradient stands in is nobody's bits: any calls before a step, taken in accumulators from the first on or only when a second
// one comes, make the same step.
#include "train/gradients.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "base/error.h"
#include "train/prefix_test_tools.h"
#include "train/trainer.h"

namespace lockstep {
namespace {

// One thing a client may do between steps, of sequences `first` and the next one.
enum class Deed { whole, in_pieces, score, abandon };
struct Act {
  Deed deed = Deed::whole;
  std::size_t first = 0;
};

LossOptions sum_of_weights() { return {.normaliser = 10, .averaging = LossAveraging::sum}; }

void act(Trainer& trainer, const Act& a, const std::vector<TrainSequence>& data) {
  const std::vector<TrainSequence> two{data[a.first], data[(a.first + 1) % data.size()]};
  switch (a.deed) {
    case Deed::whole:
      trainer.forward_backward(two, sum_of_weights());
      break;
    case Deed::in_pieces:
      trainer.begin_batch({.sequences = 2}, sum_of_weights());
      trainer.add({1}, {two[1]});
      trainer.add({0}, {two[0]});
      trainer.finish_batch();
      break;
    case Deed::score:
      trainer.score(two);
      break;
    case Deed::abandon:
      trainer.abandon_gradients();
      break;
  }
}

TEST(Gradients, AnyCallsBeforeAStepHaveTheBitsOfAccumulators) {
  const TrainBench bench(kPrefixLlama);
  std::vector<TrainSequence> data = sequences(bench.model->facts().vocabulary, 4);
  data.erase(data.begin() + 1);  // the long one
  Runtime runtime({.threads = 1}, bench.model, profile_by_name("cpu-bf16w"), 600);
  Trainer plain(runtime, bench.masters, {.accumulate = true});
  std::int64_t retaken = 0;
  const bool same = rc::check([&] {
    // A trainer of its own each time: from its first second call on it has accumulators.
    Trainer trainer(runtime, bench.masters, {.accumulate = true, .mostly_one_call = true, .kept = std::make_shared<KeptPasses>(std::int64_t{1} << 28)});
    trainer.restore(plain.state().all());
    const auto deeds = *rc::gen::container<std::vector<int>>(*rc::gen::inRange<std::size_t>(1, 6), rc::gen::inRange(0, 12));
    std::size_t calls = 0;
    for (const int d : deeds) {
      const Act a{d % 4 == 3 && d != 11 ? Deed::whole : static_cast<Deed>(d % 4), static_cast<std::size_t>(d) % data.size()};
      RC_ASSERT(calls == 0 || trainer.needs_accumulators(true));  // for one call more
      act(trainer, a, data);
      act(plain, a, data);
      calls = a.deed == Deed::abandon ? 0 : calls + (a.deed != Deed::score);
      retaken += calls == 2;
    }
    if (calls == 0) return plain.abandon_gradients();
    trainer.optim_step({.weight_decay = 0.1});
    plain.optim_step({.weight_decay = 0.1});
    RC_ASSERT(difference(bench.model->manifest(), trainer.state().masters(), plain.state().masters()) == "");
  });
  EXPECT_TRUE(same);
  EXPECT_GT(retaken, 5);
}

struct GradientsBench {
  TrainBench bench{kLlama};
  Backend backend{{.threads = 1}};
  RankRows rows{backend, bench.model->manifest()};
  std::shared_ptr<KeptPasses> kept = std::make_shared<KeptPasses>(std::int64_t{1} << 20);
};

TEST(Gradients, AFirstCallIsTakenOnceMoreWhenASecondComes) {
  GradientsBench b;
  Gradients gradients(b.backend, b.rows, {.accumulate = true, .mostly_one_call = true});
  int again = 0;
  const auto call = [&](bool one) { return Gradients::Call{one, [&] { ++again; }}; };
  EXPECT_TRUE(gradients.open(call(true)));
  EXPECT_TRUE(gradients.set()->finish_at_once());
  EXPECT_FALSE(gradients.open(call(true)));
  EXPECT_EQ(again, 1);
  EXPECT_FALSE(gradients.set()->finish_at_once());
  EXPECT_FALSE(gradients.open(call(false)));
  EXPECT_EQ(again, 1);
  gradients.take();
  gradients.drop();
  EXPECT_TRUE(gradients.open(call(true)));  // a step had several: no call is taken twice again
  EXPECT_FALSE(gradients.set()->finish_at_once());
  gradients.open(call(true));
  EXPECT_EQ(again, 1);
}

TEST(Gradients, OfOneCallAStepRefuseASecond) {
  GradientsBench b;
  Gradients gradients(b.backend, b.rows, {});
  EXPECT_THROW(gradients.take(), Error);
  gradients.open({.one_backward = true});
  EXPECT_TRUE(gradients.pending());
  EXPECT_THROW(gradients.check_may_open(), Error);
  EXPECT_THROW(gradients.open({.one_backward = true}), Error);
  gradients.abandon();
  gradients.open({.one_backward = false});
  EXPECT_FALSE(gradients.set()->finish_at_once());
  gradients.take();
  gradients.drop();
  EXPECT_EQ(gradients.set(), nullptr);
}

// Passes that were kept go with the buffers that they would deposit in.
struct KeptProbe : KeptPass {};
TEST(Gradients, KeptPassesGoWithTheirBuffers) {
  GradientsBench b;
  Gradients gradients(b.backend, b.rows, {.accumulate = true, .mostly_one_call = true, .kept = b.kept});
  const auto keep = [&] {
    PassKey key;
    key.gradients = gradients.for_kept(true);
    b.kept->keep(key, std::make_unique<KeptProbe>(), 1);
    return b.kept->statistics().bytes.load();
  };
  EXPECT_EQ(keep(), 1);
  EXPECT_TRUE(gradients.set()->finish_at_once());
  gradients.open({.one_backward = true});
  EXPECT_EQ(b.kept->statistics().bytes, 1);  // it may be asked for
  gradients.open({.one_backward = true});
  EXPECT_EQ(b.kept->statistics().bytes, 0);
  EXPECT_EQ(keep(), 1);
  gradients.take();
  EXPECT_EQ(b.kept->statistics().bytes, 0);
  gradients.drop();
  EXPECT_EQ(keep(), 1);
  EXPECT_FALSE(gradients.set()->finish_at_once());
  gradients.abandon();
  EXPECT_EQ(b.kept->statistics().bytes, 0);
  gradients.open({.one_backward = false});
  gradients.take();
  gradients.drop();
  EXPECT_EQ(Gradients(b.backend, b.rows, {}).for_kept(true), nullptr);
}

}  // namespace
}  // namespace lockstep
