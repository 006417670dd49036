// The speculation state of one request: its sources, its draft for the next step, and how many of its draft tokens were accepted. A part of a
// Sequence; used by one thread at a time.
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
    std::shared_ptr<const TokenLaw> law = nullptr;  // what it was drawn with, where rejection sampling checks it; null: it was not drawn
  };
  DraftOptions options;
  std::vector<Source> sources;                              // in the order in which they are asked
  std::vector<Guess> guess;                                 // for the step that is about to run
  std::vector<std::int32_t> layer_says;                     // what may follow the text, for DraftKind::mtp; empty: it was not asked
  std::vector<std::shared_ptr<const TokenLaw>> layer_laws;  // beside it, under rejection sampling
  // Rejection sampling (engine/drafts/verify.h) makes cycles: guesses at as many tokens as there can be, each of which is checked at its place, until one is
  // not taken or the token behind the last was drawn. What is checked depends on where a cycle began, so it goes on over as many steps as its rows need.
  bool rejects = false;    // it is on; at temperature 0 a guess is taken where it is the arg-max, which is coupled acceptance
  bool in_cycle = false;   // `guess` is what is left of one; empty: the next token is drawn, and ends it
  bool last_ends = false;  // behind the last guess there is no row: it is no token that may stand there, or one that ends the text
  std::int64_t guess_rows() const { return static_cast<std::int64_t>(guess.size()) - (last_ends && !guess.empty() ? 1 : 0); }
  void end_cycle() {
    in_cycle = last_ends = false;
    guess.clear();
  }
  std::array<DraftChance, kDraftKinds> chances;
  std::int64_t steps_without = 0, tries_again_after = 0;  // since anything was guessed, where it did not pay
  bool tried = false;                                     // this guess is such a try
  DraftCounters counters;
};

}  // namespace lockstep
