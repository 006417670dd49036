// What a verdict says fits, fits; what it says does not, does not.
#include "planning/memory_verdict.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {
const RuntimeSettings kSettings{.model = LOCKSTEP_SOURCE_DIR "/models/countdown-glm", .threads = 1};
constexpr std::int64_t kGigabyte = std::int64_t{1} << 30;

TEST(MemoryVerdict, TrainingFitsToTheByteAndNotOneLess) {
  const TrainingPlan plan{.sequences = 8, .length = 256};
  const std::int64_t needed = judge_training(kSettings, plan, {kGigabyte, "a test"}).needed;
  EXPECT_GT(needed, plan_training(kSettings, plan)[0].total);
  EXPECT_TRUE(judge_training(kSettings, plan, {needed, "a test"}).fits());
  const MemoryVerdict verdict = judge_training(kSettings, plan, {needed - 1, "a test"});
  EXPECT_FALSE(verdict.fits());
  EXPECT_EQ(verdict.missing(), 1);
  ASSERT_FALSE(verdict.remedies.empty());
  EXPECT_EQ(verdict.remedies[0].options, "--checkpoint-activations");
}

TEST(MemoryVerdict, RemediesOfTrainingFitWhenTheyArePlanned) {
  const TrainingPlan plan{.sequences = 8, .length = 256};
  TrainingPlan least = plan;
  least.trainer.checkpoint_activations = true;
  least.trainer.micro_batch = 1;
  const std::int64_t enough = judge_training(kSettings, least, {kGigabyte, "a test"}).needed;
  const MemoryVerdict verdict = judge_training(kSettings, plan, {enough, "a test"});
  ASSERT_EQ(verdict.remedies.size(), 1u);  // neither alone does
  EXPECT_EQ(verdict.remedies[0].options, "--checkpoint-activations --micro-batch 1");
  EXPECT_EQ(verdict.remedies[0].needed, enough);
}

TEST(MemoryVerdict, ServingNamesAsManySequencesAsFit) {
  const ServingPlan plan{.sequences = 1024, .length = 512, .engine = {.cache_bytes = 0}};
  const ServingMemoryOptions options{.answer_bytes = 1 << 20, .upload_bytes = 1 << 20};
  const std::int64_t available = 200 << 20;
  const MemoryVerdict verdict = judge_serving(kSettings, plan, options, {available, "a test"});
  ASSERT_FALSE(verdict.fits());
  ASSERT_FALSE(verdict.remedies.empty());
  ASSERT_TRUE(verdict.remedies[0].options.starts_with("--sequences ")) << verdict.remedies[0].options;
  ServingPlan fewer = plan;
  fewer.sequences = std::stoll(verdict.remedies[0].options.substr(12));
  EXPECT_TRUE(judge_serving(kSettings, fewer, options, {available, "a test"}).fits());
  ++fewer.sequences;
  EXPECT_FALSE(judge_serving(kSettings, fewer, options, {available, "a test"}).fits());
}

TEST(MemoryVerdict, NothingIsNamedThatDoesNotFit) {
  const MemoryVerdict training = judge_training(kSettings, {.sequences = 2, .length = 128}, {1 << 20, "a test"});
  EXPECT_FALSE(training.fits());
  EXPECT_TRUE(training.remedies.empty());
  const MemoryVerdict unknown = judge_training(kSettings, {.sequences = 2, .length = 128}, {-1, "a test"});
  EXPECT_TRUE(unknown.fits());
  EXPECT_EQ(unknown.missing(), 0);
}

}  // namespace
}  // namespace lockstep
