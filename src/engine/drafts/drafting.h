// The speculation state of one request: its sources, its draft for the next step, and how many of its draft tokens were accepted. A part of a
// Sequence; used by one thread at a time.
//   s.drafting->guess.push_back({.token = 17, .kind = DraftKind::ngram});
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/drafts/draft_length.h"
#include "engine/drafts/draft_source.h"

namespace lockstep {

struct TokenLaw;  // engine/drafts/verify.h

struct Drafting {
  struct Source {
    DraftKind kind;
    std::unique_ptr<DraftSource> guesses;
  };
  struct Guess {
    std::int32_t token = 0;
    DraftKind kind = DraftKind::scripted;
    std::shared_ptr<const TokenLaw> law = nullptr;  // the distribution it was drawn from, for rejection sampling; null: it was not drawn
  };
  DraftOptions options;
  std::vector<Source> sources;                              // in the order in which they are tried
  std::vector<Guess> guess;                                 // the draft for the next step
  std::vector<std::int32_t> layer_says;                     // predicted by the layer, for DraftKind::mtp; empty: it was not run
  std::vector<std::shared_ptr<const TokenLaw>> layer_laws;  // their distributions, under rejection sampling
  // Rejection sampling (engine/drafts/verify.h) works in cycles: a draft as long as possible, whose tokens are verified one after another, until
  // one is rejected or the token behind the last is drawn. The result depends on where a cycle began, so a cycle may take several steps.
  bool rejects = false;    // it is on; not at temperature 0, where accepting the arg-max is coupled acceptance
  bool in_cycle = false;   // `guess` is the rest of a cycle; empty: the next token is drawn, and ends it
  bool last_ends = false;  // no row is needed behind the last draft token: it is not allowed there, or it ends the text
  std::int64_t guess_rows() const { return static_cast<std::int64_t>(guess.size()) - (last_ends && !guess.empty() ? 1 : 0); }
  void end_cycle() {
    in_cycle = last_ends = false;
    guess.clear();
  }
  std::array<DraftChance, kDraftKinds> chances;
  std::int64_t steps_without = 0, tries_again_after = 0;  // steps without a draft since drafts did not pay, and after how many they are tried again
  bool tried = false;                                     // this draft is such a trial
  DraftCounters counters;
};

}  // namespace lockstep
