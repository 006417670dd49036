#include "jobs/rl_work.h"

#include <utility>

#include "base/error.h"
#include "runs/adam_settings.h"
#include "runs/difference_folder.h"
#include "runs/divergence.h"
#include "train/schedule.h"

namespace lockstep {

double RlTotals::mean_reward() const {
  double sum = 0;
  for (const double reward : rewards) sum += reward;
  return steps > 0 ? sum / static_cast<double>(steps) : 0.0;
}

RlWork::RlWork(const Environment& environment, RlStack& stack, const RlSettings& settings, const RlWorkOptions& options)
    : stack_(stack),
      settings_(settings),
      options_(options),
      training_(environment, stack.tokenizer(), stack.rollouts(), stack.trainer(), settings,
                {.allow_profile_mix = options.allow_profile_mix,
                 .stop_at_difference = options.stop_at_difference,
                 .learned = [this](const std::vector<PolicyDatum>& rollouts) { layer_metrics_ = train_layer(rollouts); },
                 .differs = [this](const DifferentToken& token) { return leave_case(token); },
                 .critic = stack.critic()}),
      traffic_({&stack.trainer(), stack.critic() ? &stack.critic()->trainer() : nullptr}),
      counted_(stack.rollout_counters()),
      trained_rows_(work_of(stack.trainer()).segment_rows) {}

void RlWork::restore(const RunDirectory& run) {
  // The optimizer may have taken several steps of each of ours.
  const nlohmann::ordered_json position = stack_.trainer().load(run);
  step_ = position.value("next_step", stack_.trainer().step());
  if (stack_.critic() && !position.empty()) stack_.critic()->load(run.path(), step_);
}

void RlWork::begin_from(const std::filesystem::path& checkpoint) { stack_.trainer().begin_from(checkpoint); }

void RlWork::begin_layer(const RunDirectory& run) {
  if (!stack_.mtp()) return;
  stack_.mtp()->begin_or_go_on(run, step_);
  stack_.trainer().publish();
}

nlohmann::ordered_json RlWork::train_layer(const std::vector<PolicyDatum>& rollouts) {
  if (!stack_.mtp() || rollouts.empty()) return nlohmann::ordered_json::object();  // every group was left out
  const double rate =
      learning_rate({.kind = settings_.schedule, .peak = stack_.mtp()->settings().learning_rate, .warmup = settings_.warmup, .steps = settings_.steps}, step_);
  AdamParameters adam = adam_parameters(settings_, rate);
  adam.max_norm = stack_.mtp()->settings().max_norm;
  adam.router_bias_rate = stack_.mtp()->settings().router_bias_rate;
  nlohmann::ordered_json metrics = stack_.mtp()->take_step(rollouts, adam);
  stack_.trainer().publish();
  return metrics;
}

RunStep RlWork::take_step() {
  check_published();
  const double rate = learning_rate({.kind = settings_.schedule, .peak = settings_.learning_rate, .warmup = settings_.warmup, .steps = settings_.steps}, step_);
  RunStep taken;
  const PolicyStep step = named_divergence({.step = step_ + 1, .learning_rate = rate, .max_norm = settings_.max_norm, .run = options_.run}, [&] {
    return training_.step(step_, optimizer_step(settings_, rate), [&](const StepRollouts& rollouts) {
      if (rollouts.step % options_.transcripts_every == 0) taken.transcripts = transcripts_of(rollouts, stack_.tokenizer(), options_.transcripts);
    });
  });
  const EngineCounters counted = stack_.rollout_counters();
  taken.metrics = to_json(step, settings_);
  taken.metrics.update(std::exchange(layer_metrics_, nlohmann::ordered_json::object()));
  if (options_.publish) try {
      taken.metrics.update(options_.publish(step_ + 1 >= settings_.steps));
    } catch (...) {
      publish_error_ = std::current_exception();
      taken.save = true;  // nothing of the step is lost: a run that goes on publishes what it begins with
    }
  taken.metrics["pairs_skipped_share"] = (counted.work - counted_.work).skipped_share();
  if (const std::int64_t drafts = counted.drafts.drafts - counted_.drafts.drafts; drafts > 0)  // tokens of a forward that checked a draft
    taken.metrics["accepted_length"] = 1 + static_cast<double>(counted.drafts.accepted - counted_.drafts.accepted) / static_cast<double>(drafts);
  add_kept_metrics(taken.metrics, counted);
  traffic_.tell(taken.metrics);
  taken.note = fmt::format("reward {:.3f}, k3 {:.3g}", step.reward, step.kl.k3());
  taken.tokens = step.tokens;
  counted_ = counted;
  ++step_;
  totals_.kl.add(step.kl);
  totals_.tokens += step.tokens;
  totals_.rewards.push_back(step.reward);
  totals_.ended += step.ended;
  ++totals_.steps;
  totals_.without_spread += step.zero_spread >= 1 && !stack_.critic();
  totals_.unequal += step.kl.different_bits > 0;
  totals_.rollout_seconds += step.rollout_seconds;
  totals_.train_seconds += step.train_seconds;
  return taken;
}

std::string RlWork::leave_case(const DifferentToken& token) {
  if (options_.run.empty()) return "";
  return leave_and_tell(stack_,
                        {.datum = token.datum,
                         .logprobs = token.logprobs,
                         .step = token.step + 1,
                         .top_k = static_cast<std::int32_t>(settings_.top_k),
                         .top_p = static_cast<float>(settings_.top_p),
                         .min_p = static_cast<float>(settings_.min_p)},
                        options_.run / "difference");
}

// Rows: of all segments of the model, each once a segment.
void RlWork::add_kept_metrics(nlohmann::ordered_json& metrics, const EngineCounters& counted) {
  const std::optional<RlStack::KeptRows> kept = stack_.kept_rows();
  if (!kept) return;
  const ForwardCounts trained = work_of(stack_.trainer());
  const SegmentRows now = trained.segment_rows, taken = now - trained_rows_;
  const std::int64_t segments = stack_.model().segments();
  metrics["rows_sampled"] = (counted.work.segment_rows - counted_.work.segment_rows).made / segments;
  metrics["rows_computed"] = taken.made / segments;
  metrics["rows_kept"] = taken.read / segments;
  metrics["rows_asked"] = taken.asked / segments;  // by the lengths of the batches: computed and kept together
  metrics["rows_recomputed"] = taken.again / segments;
  metrics["kept_rows_dropped"] = kept->dropped - kept_rows_.dropped;
  metrics["kept_rows_compared"] = kept->compared - kept_rows_.compared;
  metrics["kept_bytes"] = kept->most_bytes;
  trained_rows_ = now;
  kept_rows_ = *kept;
  // What was read and what was computed is what the batches have, or the trainer did other work than it was asked for.
  if (const std::string fault = trained.fault(); !fault.empty()) fail(ErrorCode::internal, "the trainer did other work than was asked for: {}", fault);
}

void RlWork::save(const RunDirectory& run, std::int64_t keep_last) {
  if (stack_.mtp()) stack_.mtp()->save(run, step_, keep_last);
  if (stack_.critic()) stack_.critic()->save(run.path(), step_, keep_last);  // first: see LocalCritic::save
  stack_.trainer().save(run, {{"next_step", step_}}, keep_last);
}

void RlWork::finish_save() { stack_.trainer().checkpoints().finish(); }

std::vector<std::string> schedule_names() { return {"constant", "linear", "cosine"}; }

}  // namespace lockstep
