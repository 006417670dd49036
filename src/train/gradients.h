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
    // Called when accumulators have become gradients; may be empty.
    std::function<void(GradientSet&)> finished;
  };
  Gradients(Backend& backend, const RankRows& rows, const Settings& settings) : backend_(backend), rows_(rows), settings_(settings) {}
  ~Gradients() { drop_kept(); }
  Gradients(const Gradients&) = delete;
  Gradients& operator=(const Gradients&) = delete;

  // Error internal when gradients stand that no step has taken, and calls do not accumulate.
  void check_may_open() const;
  // One call of forward_backward, which may come in pieces.
  struct Call {
    bool one_backward = false;  // its gradient is a single backward, on this rank only
    // Recomputes the call's gradient into set(). Held until the step, and called if this was the step's only call and another one comes. Empty:
    // nothing is held.
    std::function<void()> again;
  };
  // Returns whether it is the step's first call: set() is empty then.
  bool open(Call call);
  // The accumulators of the open call, its last, are joined over the ranks (train/leaving_gradients.h): close() does not do it again.
  void joined() { joined_ = true; }
  // The call has added all it has.
  void close();
  // Whether such a call would need accumulators, which take six times a gradient's memory.
  bool needs_bins(bool one_backward) const;
  bool retakes() const { return settings_.mostly_one_call; }
  bool pending() const { return calls_ > 0; }

  // Of an open call.
  GradientSet* set() const { return set_.get(); }
  // The set into which the backward of a kept forward would deposit; made if there is none. Null: no forwards are kept.
  GradientSet* for_kept(bool one_backward);

  // The gradient of all calls, for the step. Error invalid_argument when there was no call. Drops kept forwards.
  GradientSet& take();
  // The step has taken it.
  void drop();
  // After an error, or to begin again: as after a step.
  void abandon();
  // The gradients of a single call, for inspection, as RankRows::image gives them; +0 before the call. All ranks call together. Error internal where
  // calls accumulate.
  WeightImages images();

  // Whether a single call is held for recomputation (Call::again).
  bool holds_call() const { return static_cast<bool>(again_); }
  // Writes all gradients to a file between two backwards, and reads them back (train/gradient_file.h); later calls and the step have the same bits.
  // Kept forwards are dropped. `again`: as Call::again, of a single call. After an error of read(), call abandon().
  void write(CheckedWriter& file);
  void read(CheckedReader& file, std::function<void()> again);

 private:
  bool use_bins(bool bins);  // whether a new set was made, which is empty
  void finish();
  void drop_kept() const;

  Backend& backend_;
  const RankRows& rows_;
  Settings settings_;
  std::unique_ptr<GradientSet> set_;  // null: nothing was added, and no accumulator waits for the next step
  bool bins_ = false;                 // whether `set_` holds accumulators instead of plain buffers
  bool several_calls_ = false;        // whether an earlier step was made of several calls
  bool joined_ = false;               // whether the accumulators are those of all ranks
  bool pieces_ = false;               // whether the last call ran several backwards
  int calls_ = 0;                     // calls of forward_backward since the last optimizer step
  std::function<void()> again_;       // Call::again of the only call so far; empty: not held
};

}  // namespace lockstep
