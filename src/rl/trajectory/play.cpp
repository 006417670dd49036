#include "rl/trajectory/play.h"

#include <span>
#include <type_traits>
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
  show(tokenizer_.encode(episode_->task(), !episode_->in_template()));
  show(behind);
}

std::string Play::reference() const { return summary_ ? episode_->reference_summary() : episode_->reference(); }

// All parts of the turn but the last one, which stays in `turn`.
void Play::take_parts(Turn& turn, const std::vector<std::uint8_t>& put_in) {
  if (put_in.size() != turn.tokens.size())
    fail(ErrorCode::invalid_argument, "a turn has {} tokens and {} marks of what was put in, allowed are as many", turn.tokens.size(), put_in.size());
  const auto cut = [&](auto& all, std::size_t begin, std::size_t end) {
    return all.empty()
               ? all
               : std::remove_reference_t<decltype(all)>(all.begin() + static_cast<std::ptrdiff_t>(begin), all.begin() + static_cast<std::ptrdiff_t>(end));
  };
  const auto run_from = [&](std::size_t begin) {
    std::size_t end = begin;
    while (end < put_in.size() && put_in[end] == put_in[begin]) ++end;
    return end;
  };
  for (std::size_t begin = 0;;) {
    const std::size_t end = run_from(begin);
    if (put_in[begin]) {
      if (end == put_in.size()) fail(ErrorCode::invalid_argument, "a turn ends with a token that was put in, allowed is one that was written");
      const std::vector<std::int32_t> tokens = cut(turn.tokens, begin, end);
      shown_.insert(shown_.end(), tokens.begin(), tokens.end());
    } else {
      Turn part = turn;
      part.tokens = cut(turn.tokens, begin, end);
      part.sampling_logprobs = cut(turn.sampling_logprobs, begin, end);
      part.kept_tokens = cut(turn.kept_tokens, begin, end);
      if (end == put_in.size()) {
        turn = std::move(part);
        return;
      }
      part.ended = false;
      part.shown = std::exchange(shown_, {});
      rollout_.chains.back().turns.push_back(std::move(part));
    }
    begin = end;
  }
}

void Play::take(Turn turn, const std::vector<std::uint8_t>& put_in) {
  if (over_) fail(ErrorCode::internal, "the rollout of '{}' is over, and it got another turn", episode_->task());
  if (turn.tokens.empty()) fail(ErrorCode::invalid_argument, "a turn has 0 tokens of the policy, at least 1 is needed");
  turn.summary = summary_;
  turn.trained = !summary_ || settings_.train_summaries;
  const bool ended = turn.ended;
  const std::vector<std::int32_t> written = turn.tokens;  // the answer, with what was put in
  if (!put_in.empty()) take_parts(turn, put_in);
  turn.shown = std::exchange(shown_, {});
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
