// The arithmetic that a profile measures where kernels are launched, by their shapes, is that which a plan computes from the model's dimensions: two
// derivations that meet in nothing but what a multiply-add counts.
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "base/philox.h"
#include "kernels/kernel_profile.h"
#include "planning/step_plan.h"
#include "train/train_test_tools.h"
#include "train/trainer.h"

namespace lockstep {
namespace {

TEST(ProfileWork, OfATrainingStepIsThatOfItsPlan) {
  for (const char* config : {kLlama, kQwen})
    for (const bool again : {false, true}) {
      const TrainBench bench(config);
      SCOPED_TRACE(fmt::format("{}{}", bench.model->facts().model_type, again ? ", activations made again" : ""));
      const Profile& profile = profile_by_name("cpu-f32");
      StepPlan plan;
      plan.trainer.checkpoint_activations = again;
      RandomSequence draws(31, RandomStream::fuzz);
      for (const std::size_t length : {5, 40, 71}) {
        std::vector<std::int32_t> tokens(length + 1);
        for (std::int32_t& token : tokens) token = static_cast<std::int32_t>(draws.below(static_cast<std::uint32_t>(bench.model->facts().vocabulary)));
        plan.sequences.push_back(TrainSequence::next_token(tokens));
      }
      std::map<std::string, double> flop;
      {
        Runtime runtime({.kind = BackendKind::cpu, .threads = 1}, bench.model, profile, 100);
        Trainer trainer(runtime, bench.masters, plan.trainer);
        const KernelProfile measured;
        trainer.forward_backward(plan.sequences, {});
        for (const KernelTotals& kernel : measured.totals()) flop[std::string(kernel.name)] = kernel.work.flop;
      }
      const RankWork work = work_of(*bench.model, profile, plan, 0);
      // The head's loss is its product and the gradient of its input; its weight's gradient makes the logits again, which no plan counts.
      const double head = flop["head_loss"] / 2, forward = flop["linear_forward"] + flop["attention_forward"];
      const double backward = flop["linear_backward_input"] + flop["linear_backward_weight"] + flop["attention_backward"] + head + flop["head_weight"] / 2;
      EXPECT_GT(head, 0);
      if (!again) {
        EXPECT_DOUBLE_EQ(forward + head, work.forward);
        EXPECT_DOUBLE_EQ(backward, work.backward);
      } else {  // the plan makes the head's logits again too, which the head does itself
        EXPECT_DOUBLE_EQ(forward + 2 * head + backward, work.arithmetic());
      }
    }
}

// What is left of adds: in each of the two layers the one behind the feed-forward block, and in the backward one for each further product that reads a
// norm (of queries, keys and values two, of gate and up one). The residual behind attention is added where it is normed, and gradients of norms where
// they are made. Where activations are made again, so is the first of these.
TEST(ProfileWork, ResidualsAreAddedWhereTheyAreNormed) {
  for (const bool again : {false, true}) {
    const TrainBench bench(kLlama);
    TrainerOptions options;
    options.checkpoint_activations = again;
    Runtime runtime({.kind = BackendKind::cpu, .threads = 1}, bench.model, profile_by_name("cpu-f32"), 100);
    Trainer trainer(runtime, bench.masters, options);
    std::map<std::string, std::int64_t> calls;
    {
      const KernelProfile measured;
      trainer.forward_backward({TrainSequence::next_token({3, 1, 4, 1, 5, 9})}, {});
      for (const KernelTotals& kernel : measured.totals()) calls[std::string(kernel.name)] = kernel.calls;
    }
    EXPECT_EQ(calls["add"], 2 * (again ? 5 : 4)) << (again ? "activations made again" : "");
    EXPECT_EQ(calls["rms_norm_backward"], 5);
  }
}

}  // namespace
}  // namespace lockstep
