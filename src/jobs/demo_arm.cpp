#include "jobs/demo_arm.h"

#include <algorithm>
#include <chrono>

#include "base/choice.h"
#include "base/error.h"
#include "base/seconds.h"
#include "jobs/rl_work.h"
#include "observe/progress.h"
#include "rl/environment.h"
#include "rl/shared_prompts.h"

namespace lockstep {
namespace {
constexpr std::int64_t kTranscriptsAStep = 8, kTranscriptBytes = 16 << 20;
using Clock = std::chrono::steady_clock;

Evaluation measure(const std::string& label, const Environment& environment, RlStack& stack, const EvaluationSettings& settings) {
  Progress progress({.label = label, .total = settings.problems, .unit = "tokens"});
  return evaluate(environment, stack.tokenizer(), stack.evaluation(), settings,
                  [&](std::int64_t problems, std::int64_t tokens) { progress.advance(problems, static_cast<double>(tokens)); });
}
}  // namespace

const std::vector<DemoArm>& demo_arms() {
  static const std::vector<DemoArm> arms = {
      {"lockstep", "rollouts and training under one numerics profile", ""},
      {"split", "rollouts from the same weights with bf16 activations and another leaf count, as by a second engine", "study-bf16-activations"},
      {"split-int4", "rollouts from a copy of the same weights in 4-bit integers", "cpu-int4w", false},
  };
  return arms;
}

std::vector<DemoArm> demo_arms_of(const std::string& names) {
  std::vector<DemoArm> chosen;
  std::vector<std::string> known;
  for (const DemoArm& arm : demo_arms()) {
    known.push_back(arm.name);
    if (names.empty() && arm.by_default) chosen.push_back(arm);
  }
  for (std::size_t begin = 0; begin < names.size();) {
    const std::size_t end = std::min(names.find(',', begin), names.size());
    const std::string name = names.substr(begin, end - begin);
    const auto found = std::find(known.begin(), known.end(), name);
    if (found == known.end()) fail(ErrorCode::invalid_argument, "--arms names '{}', {}", name.substr(0, 60), allowed_are(name, known));
    chosen.push_back(demo_arms()[static_cast<std::size_t>(found - known.begin())]);
    begin = end + 1;
  }
  if (chosen.front().name != known.front())
    fail(ErrorCode::invalid_argument, "--arms begins with '{}', allowed is '{}' first: the others are held against it", chosen.front().name, known.front());
  return chosen;
}

ArmResult run_arm(const DemoArm& arm, const DemoSettings& settings, std::optional<Evaluation> start, const std::filesystem::path& exported) {
  const auto begin = Clock::now();
  const auto environment = make_environment(settings.rl.environment);
  const bool mix = !arm.rollout_profile.empty();
  RlStackSettings stack_settings;
  stack_settings.runtime = settings.runtime;
  stack_settings.rollout_profile = arm.rollout_profile;
  stack_settings.profile_mix = mix ? ProfileMix::allowed : ProfileMix::refused;
  stack_settings.micro_batch = settings.micro_batch;
  stack_settings.engine.drafts = settings.drafts;
  stack_settings.mtp = settings.mtp;
  stack_settings.stop = settings.stop;
  stack_settings.sharing = [&](const Tokenizer& tokenizer) { return sharing_of(settings.rl, *environment, tokenizer); };
  RlStack stack(stack_settings);
  RlSettings rl = settings.rl;
  rl.share_prompts = to_string(stack.sharing());
  if (mix) rl.importance_cap = settings.importance_cap;
  ArmResult result;
  result.arm = arm;
  result.profile = stack.rollout_profile().name;

  auto phase = Clock::now();
  result.start = start ? *start : measure("start: held-out problems", *environment, stack, settings.evaluation);
  result.evaluation_seconds = start ? 0 : seconds_since(phase);

  RunSettings run_settings;
  run_settings.name = arm.name;
  run_settings.transcript_bytes = kTranscriptBytes;
  run_settings.stop = settings.stop;
  Run run(run_settings, settings.folder);
  const ForwardCounts before = stack.rollout_counters().work;
  RlWork work(*environment, stack, rl, {.transcripts = kTranscriptsAStep, .allow_profile_mix = mix, .run = run.path()});
  if (!run.go(work, {.label = arm.name + ": reinforcement", .steps = rl.steps})) settings.stop.throw_if_stopped();
  const RlTotals& totals = work.totals();
  result.kl = totals.kl;
  result.unequal_steps = totals.unequal;
  const std::int64_t tenth = std::max<std::int64_t>(1, rl.steps / 10);
  for (std::int64_t i = 0; i < rl.steps; ++i) {
    const double share = totals.rewards.at(static_cast<std::size_t>(i)) / static_cast<double>(tenth);
    if (i < tenth) result.reward_first += share;
    if (i >= rl.steps - tenth) result.reward_last += share;
  }
  result.rollout_seconds = totals.rollout_seconds;
  result.train_seconds = totals.train_seconds;
  result.work = stack.rollout_counters().work - before;
  const ForwardCounts trained = work_of(stack.trainer());
  for (const auto& [who, work_of] : {std::pair{"the engine of the rollouts", result.work}, std::pair{"the trainer", trained}})
    if (const std::string fault = work_of.fault(); !fault.empty())
      fail(ErrorCode::internal, "arm '{}': {} did other work than was asked for: {}", arm.name, who, fault);
  phase = Clock::now();
  result.end = measure(arm.name + ": held-out problems", *environment, stack, settings.evaluation);
  result.evaluation_seconds += seconds_since(phase);
  result.weights_sha256 = stack.weights_sha256();
  if (!exported.empty()) stack.export_model(exported);
  result.seconds = seconds_since(begin);
  return result;
}

}  // namespace lockstep
