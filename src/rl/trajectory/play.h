// Plays an episode in tokens: returns the prompt that the policy continues next, takes its answer, and builds the rollout. It tracks when a context
// window is full, and then asks for a summary that begins the next one. It samples nothing itself.
//   Play play(environment, problem, tokenizer, {.compact_at = 72});
//   while (!play.over()) play.take(write(play.prompt()));
//   const Rollout rollout = play.take_rollout();
// A window is full when the next observation would make it longer than compact_at tokens. Instead of the observation the policy then sees the
// episode's request for a summary and writes one; the next window has the task, the summary and the observation. A window has at least one answer, so
// every rollout makes progress. One thread.
#pragma once
#include <memory>

#include "rl/trajectory/trajectory.h"
#include "text/tokenizer/tokenizer.h"

namespace lockstep {

struct PlaySettings {
  std::int64_t compact_at = 0;     // tokens; 0: there is one window
  std::int64_t most_turns = 4096;  // a rollout is cut off after this many turns
  bool train_summaries = true;
};

class Play {
 public:
  // Environment and tokenizer outlive this object. Errors: those of begin().
  Play(const Environment& environment, const Problem& problem, const Tokenizer& tokenizer, const PlaySettings& settings);

  bool over() const { return over_; }
  // What the policy continues: all of the window so far. Empty when it is over.
  const std::vector<std::int32_t>& prompt() const { return window_; }
  std::int64_t window() const { return std::ssize(rollout_.chains) - 1; }  // its number, from 0
  // The text that a perfect policy would write here (rl/episode.h).
  std::string reference() const;

  // The episode, for checks of an answer that is being sampled (Episode::check).
  Episode& episode() { return *episode_; }

  // Takes what the policy wrote after prompt(): the caller fills the turn's tokens, log-probabilities, kept tokens, version and `ended`. Errors:
  // those of
  // Episode::step; internal when it is over, invalid_argument without tokens.
  // `put_in`: by token, 1 if a check inserted it. Such an answer becomes a turn for each part that the policy wrote, and the inserted tokens are the
  // `shown` of the next part. Empty: none was inserted.
  void take(Turn turn, const std::vector<std::uint8_t>& put_in = {});
  // What was played so far; all of it when it is over.
  const Rollout& rollout() const { return rollout_; }
  Rollout take_rollout() { return std::move(rollout_); }

 private:
  void show(std::vector<std::int32_t> tokens);
  void take_parts(Turn& turn, const std::vector<std::uint8_t>& put_in);
  void begin_window(const std::vector<std::int32_t>& behind);
  const Tokenizer& tokenizer_;
  PlaySettings settings_;
  std::unique_ptr<Episode> episode_;
  Rollout rollout_;
  std::vector<std::int32_t> window_;   // its tokens so far
  std::vector<std::int32_t> shown_;    // the last of them, since the policy wrote
  std::vector<std::int32_t> waiting_;  // the observation that the next window has behind the summary
  bool summary_ = false;               // is what the policy writes next
  bool over_ = false;
};

}  // namespace lockstep
