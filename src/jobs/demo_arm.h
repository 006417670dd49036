// The arms of `lockstep demo`: the same model, data, seeds, loss, clipping and learning rate; they differ in the numerics profile of the
// rollouts. A new arm is a row of demo_arms(). One thread.
//   for (const DemoArm& arm : demo_arms()) results.push_back(run_arm(arm, settings, start));
#pragma once
#include <filesystem>
#include <optional>

#include "rl/evaluation.h"
#include "rl/policy_training.h"
#include "runs/rl_stack.h"

namespace lockstep {

struct DemoArm {
  std::string name, summary;
  std::string rollout_profile;  // empty: the trainer's
  bool by_default = true;       // false: only on request
};
const std::vector<DemoArm>& demo_arms();  // the first one is the published one
// The arms of a list of names, "lockstep,split"; empty: those that run by default. Error invalid_argument for a name, and when the first
// is not the published one.
std::vector<DemoArm> demo_arms_of(const std::string& names);

struct DemoSettings {
  RuntimeSettings runtime;
  RlSettings rl;
  EvaluationSettings evaluation;
  std::int64_t micro_batch = 0;
  DraftOptions drafts;        // of the rollouts
  MtpSettings mtp;            // RlStackSettings::mtp
  double importance_cap = 0;  // of the arms whose rollouts come from another profile; 0: none
  std::filesystem::path folder = "runs/demo";
  StopToken stop;
};

struct ArmResult {
  DemoArm arm;
  std::string profile;                       // of the rollouts
  KlSums kl;                                 // over all steps
  std::int64_t unequal_steps = 0;            // steps with a differing bit
  double reward_first = 0, reward_last = 0;  // mean over the first and the last tenth of the steps
  ForwardCounts work;                        // work counts of the rollouts' engine
  Evaluation start, end;                     // both under the trainer's numerics
  std::string weights_sha256;
  double rollout_seconds = 0, train_seconds = 0, evaluation_seconds = 0, seconds = 0;
};

// Trains, evaluates (`start` is evaluated when it is not given), writes folder/metrics-NAME.jsonl and, if `exported` is given,
// the model. Errors: cancelled; internal if the engine's kernels did more or less work than the selection and the router ask for; those of RlStack
// and PolicyTraining.
ArmResult run_arm(const DemoArm& arm, const DemoSettings& settings, std::optional<Evaluation> start, const std::filesystem::path& exported = {});

}  // namespace lockstep
