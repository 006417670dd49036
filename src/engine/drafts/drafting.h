// What one request is guessed ahead with: its sources, its guess for the step that is about to run, how its guesses fared.
// Used by one thread at a time; a part of a Sequence.
#pragma once
#include <array>
#include <memory>
#include <vector>

#include "engine/drafts/draft_length.h"
#include "engine/drafts/draft_source.h"

namespace lockstep {

struct Drafting {
  struct Source {
    DraftKind kind;
    std::unique_ptr<DraftSource> guesses;
  };
  struct Guess {
    std::int32_t token = 0;
    DraftKind kind = DraftKind::scripted;
  };
  DraftOptions options;
  std::vector<Source> sources;           // in the order in which they are asked
  std::vector<Guess> guess;              // for the step that is about to run
  std::vector<std::int32_t> layer_says;  // what may follow the text, for DraftKind::mtp; empty: it was not asked
  std::array<DraftChance, kDraftKinds> chances;
  std::int64_t steps_without = 0, tries_again_after = 0;  // since anything was guessed, where it did not pay
  bool tried = false;                                     // this guess is such a try
  DraftCounters counters;
};

}  // namespace lockstep
