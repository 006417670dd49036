// The optimizer's state of any parameters: a step, what stops one, and how it goes on.
#include "train/optimizer_state.h"

#include <gtest/gtest.h>

#include <stdexcept>

#include "base/error.h"
#include "train/state_test_tools.h"
#include "train/train_test_tools.h"

namespace lockstep {
namespace {

// Three parameters: two move, one does not.
struct StateBench {
  Manifest manifest;
  Backend backend{{.threads = 1}};
  Profile profile = profile_by_name("cpu-bf16w");
  WeightImages masters;
  StateBench() {
    manifest.add({"matrix", ParameterLayout::packed, 2, 24, 10});
    manifest.add({"norm", ParameterLayout::table, 1, 1, 40});
    manifest.add({"still", ParameterLayout::table, 1, 3, 7});
    for (const Parameter& p : manifest.parameters()) masters.push_back(numbers(p.size(), masters.size()));
  }
  static std::vector<float> numbers(std::int64_t size, std::uint64_t item) {
    RandomSequence draws(7, RandomStream::fuzz, item);
    std::vector<float> values(static_cast<std::size_t>(size));
    for (float& v : values) v = static_cast<float>(draws.uniform() - 0.5);
    return values;
  }
  std::vector<TrainedParameter> parameters() const { return {{.group = "a"}, {.role = {.decays = false}, .group = "b"}, {.trained = false}}; }
  // A gradient of its own for each step.
  void fill(GradientSet& set, std::uint64_t step) {
    for (ParameterId id = 0; id < 2; ++id) {
      const View view = set.gradient(id);
      backend.stream().write(view, numbers(view.size(), 100 * step + static_cast<std::uint64_t>(id)));
    }
  }
};

TrainerState images_of(OptimizerState& state) {
  return {state.images(StatePart::master), state.images(StatePart::first_moment), state.images(StatePart::second_moment), state.steps()};
}

TEST(OptimizerState, GoesOnFromItsImagesAsIfItHadNeverStopped) {
  StateBench b;
  RankRows rows(b.backend, b.manifest);
  for (const Profile* profile : {static_cast<const Profile*>(nullptr), static_cast<const Profile*>(&b.profile)}) {
    OptimizerState whole(b.backend, rows, profile, b.parameters(), b.masters, adamw(), {}),
        first(b.backend, rows, profile, b.parameters(), b.masters, adamw(), {});
    GradientSet set(b.backend, b.manifest, false);
    const auto step = [&](OptimizerState& state, std::uint64_t number) {
      set.clear();
      b.fill(set, number);
      int published = 0;
      const OptimResult result = state.step(set, {.weight_decay = 0.1, .group_norms = true}, [&] { ++published; });
      EXPECT_EQ(published, 1);
      EXPECT_EQ(result.version, number + 1);
      EXPECT_EQ(result.elements, 2 * 24 * 10 + 40);
      ASSERT_EQ(result.group_norms.size(), 2u);
      EXPECT_EQ(state.weights()[0].view().dtype, profile ? DType::bf16 : DType::f32);
    };
    for (std::uint64_t n = 0; n < 3; ++n) step(whole, n);
    step(first, 0);
    const TrainerState kept = images_of(first);
    EXPECT_TRUE(kept.first_moments[2].empty());
    EXPECT_FALSE(first.has(StatePart::second_moment, 2));
    OptimizerState later(b.backend, rows, profile, b.parameters(), kept.masters, adamw(), {});
    int published = 0;
    later.restore(reader_of(kept), kept.step, [&] { ++published; });
    EXPECT_EQ(published, 1);
    for (std::uint64_t n = 1; n < 3; ++n) step(later, n);
    expect_same_state(b.manifest, images_of(later), images_of(whole));
    EXPECT_EQ(images_of(whole).masters[2], b.masters[2]);
    EXPECT_NE(images_of(whole).masters[1], b.masters[1]);
  }
}

TEST(OptimizerState, AGradientThatIsNotFiniteChangesNothing) {
  StateBench b;
  RankRows rows(b.backend, b.manifest);
  OptimizerState state(b.backend, rows, &b.profile, b.parameters(), b.masters, adamw(), {});
  const TrainerState before = images_of(state);
  GradientSet set(b.backend, b.manifest, false);
  b.fill(set, 0);
  b.backend.stream().write(set.gradient(1), std::vector<float>(40, std::numeric_limits<float>::infinity()));
  try {
    state.step(set, {}, [] { FAIL() << "published"; });
    FAIL() << "an infinite gradient was taken";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::numeric);
  }
  state.check_usable();
  expect_same_state(b.manifest, images_of(state), before);
  b.fill(set, 0);
  EXPECT_EQ(state.step(set, {}, [] {}).version, 1u);
}

TEST(OptimizerState, WhatIsBrokenOffIsRefusedUntilItIsRestored) {
  StateBench b;
  RankRows rows(b.backend, b.manifest);
  OptimizerState state(b.backend, rows, &b.profile, b.parameters(), b.masters, adamw(), {});
  const TrainerState before = images_of(state);
  GradientSet set(b.backend, b.manifest, false);
  b.fill(set, 0);
  EXPECT_THROW(state.step(set, {}, [] { throw std::runtime_error("no room to publish"); }), std::runtime_error);
  try {
    state.check_usable();
    FAIL() << "it is usable";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("followed step 0"), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("restore a checkpoint"), std::string::npos);
  }
  b.fill(set, 0);
  EXPECT_THROW(state.step(set, {}, [] {}), Error);
  EXPECT_THROW(state.restore(reader_of(before), before.step, [] { throw std::runtime_error("again"); }), std::runtime_error);
  EXPECT_THROW(state.check_usable(), Error);
  state.restore(reader_of(before), before.step, [] {});
  expect_same_state(b.manifest, images_of(state), before);
  state.break_off();  // another rank's step was
  EXPECT_THROW(state.check_usable(), Error);
}

TEST(OptimizerState, ValuesThatDoNotMoveByGradientsAreReplaced) {
  StateBench b;
  RankRows rows(b.backend, b.manifest);
  OptimizerState state(b.backend, rows, nullptr, b.parameters(), b.masters, adamw(), {});
  GradientSet set(b.backend, b.manifest, false);
  b.fill(set, 0);
  const std::vector<float> other(21, 2.5f);
  state.step(set, {}, [&] { state.replace(2, other); });
  EXPECT_EQ(state.image(StatePart::master, 2), other);
  EXPECT_EQ(b.backend.stream().read(state.weights()[2].view()).get(), other);
}

}  // namespace
}  // namespace lockstep
