#include "cli/demo_arm.h"

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "base/seconds.h"
#include "base/signals.h"
#include "observe/bounded_log.h"
#include "observe/progress.h"
#include "rl/environment.h"
#include "runs/rl_run.h"

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
    if (found == known.end())
      fail(ErrorCode::invalid_argument, "--arms names '{}', allowed are {}{}", name.substr(0, 60), fmt::join(known, ", "), did_you_mean(name, known));
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
  stack_settings.share_prompts = share_prompts_by_name(settings.rl.share_prompts);
  RlStack stack(stack_settings);
  RlSettings rl = settings.rl;
  if (mix) rl.importance_cap = settings.importance_cap;
  PolicyTraining training(*environment, stack.tokenizer(), stack.rollouts(), stack.trainer(), rl, mix);
  ArmResult result;
  result.arm = arm;
  result.profile = stack.rollout_profile().name;

  auto phase = Clock::now();
  result.start = start ? *start : measure("start: held-out problems", *environment, stack, settings.evaluation);
  result.evaluation_seconds = start ? 0 : seconds_since(phase);

  const std::filesystem::path metrics_file = settings.folder / ("metrics-" + arm.name + ".jsonl");
  MetricsLog metrics = MetricsLog::create(metrics_file);
  BoundedLog transcripts = BoundedLog::resume(settings.folder / ("transcripts-" + arm.name + ".jsonl"), 0, kTranscriptBytes);
  const ForwardCounts before = stack.rollout_counters().work;
  const std::int64_t steps = settings.rl.steps, tenth = std::max<std::int64_t>(1, steps / 10);
  {
    Progress progress({.label = arm.name + ": reinforcement", .total = steps, .unit = "tokens"});
    for (std::int64_t i = 0; i < steps; ++i) {
      throw_if_interrupted();
      const double rate = scheduled_rate(settings.rl.schedule, settings.rl.learning_rate, settings.rl.warmup, steps, i);
      const PolicyStep step = training.step(i, optimizer_step(settings.rl, rate), [&](const StepRollouts& rollouts) {
        for (const auto& line : transcripts_of(rollouts, stack.tokenizer(), kTranscriptsAStep)) transcripts.append(line);
      });
      metrics.append(to_json(step));
      result.kl.add(step.kl);
      result.unequal_steps += step.kl.different_bits > 0;
      if (i < tenth) result.reward_first += step.reward / static_cast<double>(tenth);
      if (i >= steps - tenth) result.reward_last += step.reward / static_cast<double>(tenth);
      result.rollout_seconds += step.rollout_seconds;
      result.train_seconds += step.train_seconds;
      progress.note(fmt::format("reward {:.3f}, k3 {:.3g}", step.reward, step.kl.k3()));
      progress.advance(1, static_cast<double>(step.tokens));
    }
  }
  result.work = stack.rollout_counters().work - before;
  const ForwardCounts trained = stack.trainer().with_trainer([](Trainer& trainer) { return trainer.work(); });
  for (const auto& [who, work] : {std::pair{"the engine of the rollouts", result.work}, std::pair{"the trainer", trained}})
    if (const std::string fault = work.fault(); !fault.empty()) fail(ErrorCode::internal, "arm '{}': {} did other work than was asked for: {}", arm.name, who, fault);
  phase = Clock::now();
  result.end = measure(arm.name + ": held-out problems", *environment, stack, settings.evaluation);
  result.evaluation_seconds += seconds_since(phase);
  result.weights_sha256 = stack.weights_sha256();
  if (!exported.empty()) stack.export_model(exported);
  result.seconds = seconds_since(begin);
  return result;
}

}  // namespace lockstep
