#include "runs/local_critic.h"

#include <algorithm>

#include "base/error.h"
#include "checkpoint/training_checkpoint.h"
#include "model/value_head.h"
#include "runs/training_state.h"
#include "train/kept_passes.h"
#include "train/value_loss.h"

namespace lockstep {

namespace {
std::filesystem::path critic_checkpoints(const std::filesystem::path& run) { return run / "critic" / "checkpoints"; }

std::vector<TrainSequence> value_sequences(const std::vector<ValueDatum>& data) {
  std::vector<TrainSequence> sequences;
  for (const ValueDatum& d : data) {
    TrainSequence& s = sequences.emplace_back();
    s.tokens = d.tokens;
    s.weights = d.weights;
    for (std::size_t i = 0; i < d.tokens.size(); ++i) s.targets.push_back(d.weights[i] != 0 ? d.tokens[i] : -1);
    s.advantages = d.returns;
    s.old_logprobs = d.values;
  }
  return sequences;
}
}  // namespace

OpenedModel LocalCritic::checked(const OpenedModel& opened) {
  if (!has_value_head(*opened.model)) fail(ErrorCode::unsupported, "the critic '{}' has no value head (score.weight)", opened.name);
  return opened;
}

LocalCritic::LocalCritic(const OpenedModel& opened, const TrainedSettings& settings, const TrainerOptions& options, std::shared_ptr<Executor> executor,
                         const LocalTrainer* policy)
    : profile_(opened.runtime->profile), kept_(options.kept), trainer_(checked(opened), settings, options, std::move(executor), policy) {}

// On the executor, whose memory it is.
void LocalCritic::drop_kept() {
  valued_.clear();
  trainer_.with_model([this](TrainedModel&) {
    while (kept_->drop_oldest()) {
    }
  });
}

std::vector<std::vector<float>> LocalCritic::values(const std::vector<ValueDatum>& data) {
  std::vector<TrainSequence> sequences = value_sequences(data);
  if (!kept_) return trainer_.score(sequences);
  drop_kept();  // nobody asked for its gradient
  std::vector<std::vector<float>> values = trainer_.score(sequences);
  valued_ = std::move(sequences);
  return values;
}

ValueResult LocalCritic::forward_backward(const std::vector<ValueDatum>& data, double clip) {
  const LossOptions loss = value_loss({{"averaging", "token_mean"}, {"value_clip", clip}});
  const std::vector<TrainSequence> sequences = value_sequences(data);
  // What was kept of other states would only stand beside this forward: of a rollout that was cut off one state fewer is trained than was asked for.
  const auto same = [](const TrainSequence& a, const TrainSequence& b) { return a.tokens == b.tokens && a.targets == b.targets; };
  if (kept_ && !std::equal(valued_.begin(), valued_.end(), sequences.begin(), sequences.end(), same)) drop_kept();
  const ForwardBackwardResult got = trainer_.forward_backward(sequences, loss);
  ValueResult result{.loss = got.loss, .rows = got.rows};
  std::int64_t held = 0;
  for (const std::vector<std::int32_t>& marks : got.marks)
    for (const std::int32_t mark : marks) held += mark != 0;
  result.held = got.scored > 0 ? static_cast<double>(held) / static_cast<double>(got.scored) : 0.0;
  return result;
}

void LocalCritic::save(const std::filesystem::path& run, std::int64_t policy_step, std::int64_t keep_last) {
  std::error_code error;
  std::filesystem::create_directories(critic_checkpoints(run), error);
  if (error) fail(ErrorCode::io, "cannot create '{}': {}", critic_checkpoints(run).string(), error.message());
  const CheckpointHead head{.profile_digest = profile_.training_digest(false), .position = {{"next_step", policy_step}}};
  trainer_.checkpoints().save(critic_checkpoints(run), head, keep_last == 0 ? 0 : keep_last + 1);
  trainer_.checkpoints().finish();  // before the policy's
}

void LocalCritic::load(const std::filesystem::path& run, std::int64_t policy_step) {
  const std::vector<std::int64_t> steps = checkpoint_steps(critic_checkpoints(run));
  for (std::size_t i = steps.size(); i-- > 0;) {
    const std::filesystem::path folder = critic_checkpoints(run) / checkpoint_name(steps[i]);
    if (read_checkpoint_head(folder).position.value("next_step", std::int64_t{-1}) != policy_step) continue;
    trainer_.checkpoints().restore(folder);
    return trainer_.publish();
  }
  fail(ErrorCode::not_found, "'{}' has no checkpoint of step {}, at which the policy goes on; --fork NAME begins another run from the policy's weights",
       critic_checkpoints(run).string(), policy_step);
}

}  // namespace lockstep
