// What steps left of a trainer, compared bit for bit: masters, both moments and the count of steps. Tests only.
//   expect_same_state(bench.model->manifest(), trainer.state().all(), want);
#pragma once
#include <gtest/gtest.h>

#include "train/options.h"
#include "train/train_test_tools.h"

namespace lockstep {

inline void expect_same_state(const Manifest& manifest, const TrainerState& got, const TrainerState& want) {
  EXPECT_EQ(difference(manifest, got.masters, want.masters), "") << "masters";
  EXPECT_EQ(difference(manifest, got.first_moments, want.first_moments), "") << "first moments";
  EXPECT_EQ(difference(manifest, got.second_moments, want.second_moments), "") << "second moments";
  EXPECT_EQ(got.step, want.step);
}

}  // namespace lockstep
