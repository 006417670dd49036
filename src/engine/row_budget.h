// How many rows a sequence gets in the next forward: the least of what it can use, what is left of the forward, and, for rollouts and long
// prompts beside live requests, what the step's time allows (engine/live_room.h). Knows no pages. Used by one thread at a time.
//   rows.begin(live); const std::int64_t count = rows.of(s); rows.take(slice);
#pragma once
#include "engine/fair_order.h"
#include "engine/live_room.h"
#include "engine/options.h"
#include "engine/planned_slice.h"

namespace lockstep {

class RowBudget {
 public:
  explicit RowBudget(const EngineOptions& options)
      : most_(options.max_batch_rows), chunk_(options.prefill_chunk), left_(most_), room_(options.live_token_seconds) {}

  // A plan begins; `live`: live requests run.
  void begin(bool live);
  std::int64_t left() const { return left_; }
  std::int64_t taken() const { return most_ - left_; }
  // Whether the sequence decodes: its next forward has one row, that of its last token.
  bool decodes(const Sequence& s) const;
  std::int64_t of(const Sequence& s);
  // How many of that many rows of draft tokens fit behind the slice; no room is made for them.
  std::int64_t of_guesses(const PlannedSlice& p, std::int64_t rows) const;
  // Adds a slice to the plan; removes it; adds rows of draft tokens behind it.
  void take(const PlannedSlice& p);
  void put_back(const PlannedSlice& p);
  void take_guesses(const PlannedSlice& p, std::int64_t rows);

  // Live sequences have their rows first, and then the others (EngineOptions::live_token_seconds).
  bool live_first() const { return room_.on(); }
  Classes classes() const { return live_first() ? Classes::live_first : Classes::by_shares; }
  bool holds_back() const { return room_.holds_back(); }
  // Reports the seconds of the planned step.
  void observe(double seconds) { room_.observe(seconds); }

 private:
  std::int64_t wanted(const Sequence& s) const;

  std::int64_t most_, chunk_, left_;
  LiveRoom room_;
};

}  // namespace lockstep
