// Makes the drafts of a step, and adapts their lengths to how many are accepted. Under a constraint a draft ends before a forbidden token, a place
// where only one token is allowed needs no source, and the masks of all rows are in Sequence::mask. Used by one thread at a time.
//   Drafter drafter(options.drafts, vocabulary); drafter.begin(s, request);
//   drafter.guess(s, room, rows); drafter.learn(s, guessed, right);  // between them the step runs with s.drafting->guess behind the text
// In a model with a layer of multi-token prediction (set_layer), Drafting::layer_says is filled before guess() for the requests that wants_layer()
// names.
#pragma once
#include "engine/drafts/sibling_source.h"
#include "engine/sequence.h"

namespace lockstep {

class Drafter {
 public:
  Drafter(const DraftOptions& options, std::int64_t vocabulary) : options_(options), vocabulary_(vocabulary) {}
  void set_layer() { layer_ = true; }
  // Makes the sequence's sources from its request. Error invalid_argument when it names a source that is missing.
  void begin(Sequence& s, Request& request);
  // How many tokens the layer should predict for a decoding sequence, in a forward of that many rows; 0: it does not pay, or is no source.
  std::int64_t wants_layer(const Sequence& s, std::int64_t rows) const;
  // Reports the layer's tokens of a step and their seconds.
  void observe_layer(std::int64_t tokens, double seconds);
  // Makes a draft of at most `room` tokens for a sequence whose next token is about to be sampled, in a forward of that many rows.
  void guess(Sequence& s, std::int64_t room, std::int64_t rows);
  // Goes on with the draft that it has: asks the constraint again for the masks behind its tokens.
  void go_on(Sequence& s);
  // Of the draft `guessed` tokens were computed, and the first `right` were accepted.
  void learn(Sequence& s, std::int64_t guessed, std::int64_t right);
  // The request has ended.
  void end(Sequence& s);
  // A forward of so many decoding rows.
  void observe(std::int64_t rows, double seconds) { costs_.observe(rows, seconds); }

  const DraftCounters& counters() const { return counters_; }

 private:
  double chance(const Drafting& drafting, DraftKind kind) const;
  std::int64_t most_tokens(const Sequence& s) const;
  void ask_sources(const Sequence& s, std::int64_t most, double least_chance);

  DraftOptions options_;
  std::int64_t vocabulary_;
  bool layer_ = false;
  double layer_seconds_ = 0;  // a token, lately; 0: not measured
  SiblingTexts siblings_;
  StepCosts costs_;
  std::array<DraftChance, kDraftKinds> chances_;
  DraftCounters counters_;
  std::vector<std::int32_t> proposed_, drafted_;  // by the last source that was asked; before it
  DraftKind proposed_by_ = DraftKind::scripted;
};

}  // namespace lockstep
