#include "rl/trajectory/play.h"

#include <span>
#include <utility>

#include "base/error.h"

namespace lockstep {

Play::Play(const Environment& environment, const Problem& problem, const Tokenizer& tokenizer, const PlaySettings& settings)
    : tokenizer_(tokenizer), settings_(settings), episode_(environment.begin(problem)) {
  begin_window(tokenizer_.encode(episode_->first(), false));
}

void Play::show(std::vector<std::int32_t> tokens) {
  window_.insert(window_.end(), tokens.begin(), tokens.end());
  shown_.insert(shown_.end(), tokens.begin(), tokens.end());
}

void Play::begin_window(const std::vector<std::int32_t>& behind) {
  rollout_.chains.emplace_back();
  window_.clear();
  shown_.clear();
  show(tokenizer_.encode(episode_->task(), true));
  show(behind);
}

std::string Play::reference() const { return summary_ ? episode_->reference_summary() : episode_->reference(); }

void Play::take(Turn turn) {
  if (over_) fail(ErrorCode::internal, "the rollout of '{}' is over, and it got another turn", episode_->task());
  if (turn.tokens.empty()) fail(ErrorCode::invalid_argument, "a turn has 0 tokens of the policy, at least 1 is needed");
  turn.shown = std::exchange(shown_, {});
  turn.summary = summary_;
  turn.trained = !summary_ || settings_.train_summaries;
  const bool ended = turn.ended;
  const std::vector<std::int32_t> written = turn.tokens;
  window_.insert(window_.end(), written.begin(), written.end());
  Turn& taken = rollout_.chains.back().turns.emplace_back(std::move(turn));
  const auto stop = [&] {
    over_ = true;
    window_.clear();
  };
  const bool last = rollout_.turns() >= settings_.most_turns;
  if (!ended) return stop();
  if (std::exchange(summary_, false)) {
    if (last) return stop();
    episode_->next_window();
    std::vector<std::int32_t> behind = written;
    const std::vector<std::int32_t> observation = std::exchange(waiting_, {});
    behind.insert(behind.end(), observation.begin(), observation.end());
    return begin_window(behind);
  }
  // Special tokens stay in the text: an answer that contains one is wrong.
  const EpisodeStep step = episode_->step(tokenizer_.decode(std::span(written).first(written.size() - 1), false));
  if (step.done) {
    rollout_.ended = true;
    rollout_.reward = step.reward;
    return stop();
  }
  taken.reward = step.reward;
  if (last) return stop();
  std::vector<std::int32_t> observation = tokenizer_.encode(step.observation, false);
  if (settings_.compact_at > 0 && std::ssize(window_) + std::ssize(observation) > settings_.compact_at) {
    waiting_ = std::move(observation);
    summary_ = true;
    show(tokenizer_.encode(episode_->summary_prompt(), false));
  } else {
    show(std::move(observation));
  }
}

}  // namespace lockstep
