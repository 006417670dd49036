// Limits the rows of rollouts in a step that live requests share (base/fair_shares.h). With `--live-token-ms 40` a step takes as many rows of
// rollouts as keep its predicted time within 40 ms, the longest gap between two tokens of a live stream. When live rows alone take longer than
// that, every kWaits-th step still has some rows of rollouts (one for every kLiveRows live ones, at least one), so that rollouts never stop. There
// is no limit while no live request runs and none ran in the last kStepsAfter steps: the next live request may then wait for one step of any
// length. Without such a gap every step has all running rollouts, and only their prompts are limited: beside live work the prompts of one step take
// at most kPromptSeconds, so that live requests run and enter between two parts of a long prompt. A long prompt of a live request itself makes a step
// in which others decode at most 1 + kLivePromptShare times as long, however far behind its rows stand: a million tokens do not stall their neighbours.
// Knows no sequence and no clock. Used by one thread at a time.
//   LiveRoom room(0.04); room.begin(true); room.take({.begin = 70, .count = 1, .tokens = 1}, true); const std::int64_t rows = room.rows(0, 128, 300);
#pragma once
#include <cstdint>

#include "engine/step_predictor.h"

namespace lockstep {

// Rows [begin, begin + count) of a sequence, of which the last `tokens` are sampled from.
struct RowSpan {
  std::int64_t begin = 0, count = 0, tokens = 0;
};

class LiveRoom {
 public:
  static constexpr int kWaits = 8, kLiveRows = 4, kStepsAfter = 50;
  static constexpr double kPromptSeconds = 0.025, kLivePromptShare = 1.5;
  static constexpr std::int64_t kLeastPromptRows = 4;  // of a step, however long they take

  // 0: no limit, and classes are mixed by their shares.
  explicit LiveRoom(double live_token_seconds) : most_seconds_(live_token_seconds) {}
  bool on() const { return most_seconds_ > 0; }

  // A plan begins; `live`: live requests run.
  void begin(bool live);
  // How many of the next `wanted` rows of a rollout at `begin` there is room for. When it is all of `pending`, the last one samples a token.
  std::int64_t rows(std::int64_t begin, std::int64_t wanted, std::int64_t pending);
  // The same for a rollout's prompt, after rows() allowed `wanted`.
  std::int64_t prompt_rows(std::int64_t begin, std::int64_t wanted, std::int64_t pending) const;
  // How many of the next `wanted` rows of a live request's long prompt there is room for beside live rows that decode.
  std::int64_t live_prompt_rows(std::int64_t begin, std::int64_t wanted, std::int64_t pending) const;
  // The same for rows of draft tokens, each of which samples a token. Nothing waits for them.
  std::int64_t guessed_rows(std::int64_t begin, std::int64_t wanted) const;
  // Adds rows to the plan; removes them from it. `prompt`: of a prompt.
  void take(const RowSpan& rows, bool live, bool prompt = false);
  void put_back(const RowSpan& rows, bool live, bool prompt = false);
  // Adds rows of draft tokens. Those of live requests come after rollouts have their rows, so the next plan leaves as much room for them.
  void take_guesses(const RowSpan& rows, bool live);
  // Notes that rollouts have fewer rows in this plan than they could use.
  bool holds_back() const { return holds_back_; }
  // Reports the seconds of the planned step.
  void observe(double seconds) { predictor_.observe(work_, seconds); }

 private:
  template <class F>
  std::int64_t most(std::int64_t wanted, const StepWork& beside, double seconds, const F& span) const;

  double most_seconds_;
  StepPredictor predictor_;
  StepWork work_, prompts_, live_prompts_;  // that is planned; of that, prompts of rollouts, and of live requests
  StepWork live_guesses_, guesses_before_;  // of that; of the plan before: as many are expected
  std::int64_t live_rows_ = 0, other_rows_ = 0;
  int steps_without_ = 0;  // of rollouts' rows that were wanted, in a row
  int steps_after_ = kStepsAfter;
  bool holds_back_ = false;
};

}  // namespace lockstep
