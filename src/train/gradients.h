// The gradients for the next optimizer step, of whole weights and of adapters alike. When one backward is the whole step, each parameter has a plain
// buffer; when several calls add up, accumulators. Bits do not depend on which: an accumulator that one backward filled rounds to what that backward
// would have written. Also holds the calls' data while their forwards are kept (train/kept_passes.h). Used by the rank's thread.
//   Gradients gradients(backend, rows, settings); gradients.open({.one_backward = true}); ... gradients.set(); gradients.close();
//   optimizer.step(gradients.take(), adam); gradients.drop();
#pragma once
#include <functional>
#include <memory>

#include "base/checked_file.h"
#include "model/tape.h"
#include "train/kept_passes.h"
#include "train/rank_rows.h"

namespace lockstep {

class Gradients {
 public:
  struct Settings {
    bool accumulate = false;           // several calls before a step
    bool mostly_one_call = false;      // with it: accumulators come with a step's second call alone (TrainerOptions)
    bool always_bins = false;          // accumulators whatever comes
    std::shared_ptr<KeptPasses> kept;  // null: forwards are not kept
  };
  Gradients(Backend& backend, const RankRows& rows, const Settings& settings) : backend_(backend), rows_(rows), settings_(settings) {}
  ~Gradients() { drop_kept(); }
  Gradients(const Gradients&) = delete;
  Gradients& operator=(const Gradients&) = delete;

  // Error internal when gradients stand that no step has taken, and calls do not accumulate.
  void check_may_open() const;
  // One call of forward_backward, which may come in pieces.
  struct Call {
    bool one_backward = false;  // on this rank and no other, as far as this call goes
    // Makes its gradient once more, into set(). Kept until the step, and called where this call stood alone and another comes; none: the
    // call leaves nothing.
    std::function<void()> again;
  };
  // Whether it is the step's first call: set() is empty then.
  bool open(Call call);
  // The call has added all it has.
  void close();
  // Whether such a call would need accumulators, which take six times a gradient's memory.
  bool needs_bins(bool one_backward) const;
  bool retakes() const { return settings_.mostly_one_call; }
  bool pending() const { return calls_ > 0; }

  // Of an open call.
  GradientSet* set() const { return set_.get(); }
  // Where forwards that are kept would deposit: made when there is none. Null: none are kept.
  GradientSet* for_kept(bool one_backward);

  // All calls' gradient, for the step. Error invalid_argument when there was no call. Forwards that were kept go.
  GradientSet& take();
  // The step has taken it.
  void drop();
  // After an error, or to begin again: as after a step.
  void abandon();
  // Of one call, to look at, as RankRows::image has them; +0 before it. All ranks call together. Error internal where calls accumulate.
  WeightImages images();

  // Whether the call that stands alone would be made once more (Call::again).
  bool holds_call() const { return static_cast<bool>(again_); }
  // All of it, between two backwards, into a file and back (train/gradient_file.h). What is added later, and the step, have the bits that they
  // would have had; forwards that were kept are gone. `again`: of the call that stood alone. An error of read() leaves what abandon() cleans.
  void write(CheckedWriter& file);
  void read(CheckedReader& file, std::function<void()> again);

 private:
  bool use_bins(bool bins);  // whether a new set was made, which is empty
  void finish();
  void drop_kept() const;

  Backend& backend_;
  const RankRows& rows_;
  Settings settings_;
  std::unique_ptr<GradientSet> set_;  // null: no gradient, and no accumulator
  bool bins_ = false;                 // whether it has accumulators
  bool several_calls_ = false;        // a step had them
  bool pieces_ = false;               // the last call was of several backwards
  int calls_ = 0;                     // that no step has taken
  std::function<void()> again_;
};

}  // namespace lockstep
