#include "jobs/rl_job.h"

#include <algorithm>

#include "base/choice.h"
#include "rl/conversation_environment.h"
#include "rl/shared_prompts.h"
#include "runs/policy_loss.h"
#include "runs/run_settings.h"
#include "runs/training_state.h"

namespace lockstep {
namespace {
// With the likely reason. Where half of the rollouts and more were cut off it is their length.
std::string nothing_learned(const RlTotals& totals, std::int64_t max_tokens) {
  std::string told =
      fmt::format("nothing was learned: in none of the {} steps did the rewards of a group differ (mean reward {:.3f}); ", totals.steps, totals.mean_reward());
  const double cut = 1 - totals.ended / static_cast<double>(totals.steps);
  if (cut >= 0.5) return told + fmt::format("{:.0f}% of the rollouts had no end token within --max-tokens {}", 100 * cut, max_tokens);
  return told + "the problems are too hard or too easy for this model, or --rollouts too few";
}
}  // namespace

double default_rl_learning_rate(const TrainedSettings& trained) {
  const double full = RlSettings().learning_rate;
  const double share = optimizer_family(trained).adamw_share;
  return share < 1 ? full / share : trained.rank > 0 ? 10 * full : full;
}

RlSummary run_rl(const RlJob& job) {
  check(job.rl);
  check_run_name(job.run.name);
  check_choice("export_dtype", job.export_dtype, {"bf16", "f32"});
  check_sharing(share_prompts_by_name(job.rl.share_prompts), job.rl, job.stack.micro_batch);
  const auto environment = job.rl.chat ? make_conversation_environment(job.rl.environment, job.stack.runtime.model) : make_environment(job.rl.environment);
  RlStackSettings settings = job.stack;
  settings.profile_mix = job.allow_profile_mix ? ProfileMix::allowed : ProfileMix::refused;
  settings.sharing = [&](const Tokenizer& tokenizer) {
    const SharePrompts chosen = sharing_of(job.rl, *environment, tokenizer);
    check_sharing(chosen, job.rl, job.stack.micro_batch);
    return chosen;
  };
  settings.optimizer_folder = optimizer_folder(job.optimizer_state, job.run.runs);
  settings.stop = job.run.stop;
  settings.trained.seed = job.init_seed;
  settings.trained.train_unembed = false;
  settings.mtp_initial.seed = job.init_seed;
  if (const CriticSettings& critic = job.rl.critic; critic.there()) {
    settings.critic = TrainedSettings{.rank = critic.kind == "adapter" ? critic.rank : 0, .seed = job.init_seed};
    settings.critic_model = critic.model;
  }
  RlStack stack(settings);  // the model first: a folder that cannot be read must not leave a run behind
  if (needs_reference(job.rl)) stack.trainer().keep_reference();
  std::optional<RlPublishing> publishing;
  if (!job.publish.place.empty()) publishing.emplace(stack, job.publish, job.stack.runtime.model);
  RlSettings rl = job.rl;
  rl.share_prompts = to_string(stack.sharing());
  RunSettings settled = job.run;
  if (settled.resolved.contains("share_prompts"))
    settled.resolved["share_prompts"] = rl.share_prompts;  // what was chosen: a run that goes on must choose it too
  Run run(settled);
  if (run.directory().resumed()) {
    const Json before = run.directory().config();
    Json now = settled.resolved;
    if (now.contains("warmup")) {
      const auto& unsaid = job.run.unsaid;
      rl.warmup = resumed_warmup(before, rl.warmup, std::find(unsaid.begin(), unsaid.end(), "warmup") == unsaid.end());
      now["warmup"] = fmt::format("{}", rl.warmup);
    }
    check_resumed_settings(before, now, {.unsaid = job.run.unsaid});
  }
  RlWork work(*environment, stack, rl,
              {.transcripts = job.transcripts,
               .transcripts_every = job.transcripts_every,
               .allow_profile_mix = job.allow_profile_mix,
               .stop_at_difference = job.stop_at_difference,
               .run = run.path(),
               .publish = publishing ? [&](bool last) { return publishing->publish(last); } : std::function<nlohmann::ordered_json(bool)>()});
  if (run.directory().resumed()) work.restore(run.directory());
  if (const std::string from = run.directory().config().value("forked_from", ""); work.step() == 0 && !from.empty()) work.begin_from(from);
  work.begin_layer(run.directory());
  run.started();
  if (job.rl.share_prompts == "auto" && stack.sharing() == SharePrompts::backward)
    run.say(
        fmt::format("rollouts of one prompt share it in the backward too; checkpoints say so by their training digest, {}; --share-prompts forward shares the "
                    "forward alone",
                    stack.trainer().training_digest()));
  if (stack.rollout_profile().digest() == stack.profile().digest() && corrects_nothing(policy_loss(job.rl), job.rl.epochs * job.rl.mini_batches))
    run.say(
        "the correction changes nothing: the sampler has the trainer's own numbers, so its factor is 1 for every token; --rollout-profile with "
        "--allow-profile-mix makes them differ");
  if (publishing) publishing->publish(true);  // what it begins with: followers take the whole copy while the first step is made

  RlSummary summary;
  summary.run = run.path();
  summary.finished = run.go(work, {.label = "rl", .steps = job.rl.steps});
  work.check_published();
  if (publishing) publishing->finish();  // of a run that was stopped
  summary.steps = work.step();
  summary.totals = work.totals();
  const RlTotals& totals = summary.totals;
  if (totals.steps == 0 && summary.finished)
    run.say(fmt::format("the run '{}' was finished at step {}: nothing is trained; --steps with a larger number goes on", run.path().string(), summary.steps));
  if (totals.steps > 0 && totals.without_spread == totals.steps) run.say(nothing_learned(totals, job.rl.max_tokens));
  if (!summary.finished) return summary;
  summary.exported = run.directory().export_folder();
  stack.export_model(summary.exported, job.export_dtype == "bf16" ? DType::bf16 : DType::f32);
  summary.weights_sha256 = stack.weights_sha256();
  summary.draft_sha256 = stack.draft_sha256();
  if (!stack.critic()) return summary;
  summary.critic_exported = summary.run / "critic" / "export";
  stack.export_critic(summary.critic_exported, job.export_dtype == "bf16" ? DType::bf16 : DType::f32);
  summary.critic_sha256 = stack.critic()->weights_sha256();
  return summary;
}

}  // namespace lockstep
