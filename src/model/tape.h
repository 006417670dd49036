// The tape: records of a forward's operations, which the backward replays in reverse, and the gradients of activations while they are needed. An
// activation that is used n times gets its gradients by plain adds in reverse order of the records.
//   Tape tape(backend, &gradients); Context ctx = runtime.context(weights, cache, batch, options, &tape);
#pragma once
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/backend.h"
#include "model/manifest.h"
#include "model/parameter_share.h"

namespace lockstep {

// How the columns of an activation are split over ranks: rank r has [bounds[r], bounds[r + 1]). Null: each has all of them.
using ColumnSplit = std::shared_ptr<const std::vector<std::int64_t>>;

// A cheap activation (a norm, an elementwise product) that is recomputed in the backward: records hold the function instead of its
// buffer. The first record that asks recomputes it; it lives until the last one is done.
class Recomputed {
 public:
  explicit Recomputed(std::function<Buffer()> make) : make_(std::move(make)) {}
  const View& view() {
    if (!buffer_) buffer_ = make_();
    return buffer_.view();
  }

 private:
  std::function<Buffer()> make_;
  Buffer buffer_;
};

// An activation's rows in the backward, where sequences share rows in the forward (model/batch.h). The first record
// that asks gathers them; they live until the last one is done.
struct TapeRows {
  View source;  // i32 [rows of the tape, 1]: the activation's row of each
  Buffer buffer;
};

// An activation: its buffer, and its node on the tape (-1: requires no gradient). With a split, buffer and gradient are this rank's
// columns. A gradient has the rows of the tape.
struct Tensor {
  Buffer buffer;
  int node = -1;
  ColumnSplit split = {};
  std::shared_ptr<Recomputed> recomputed = nullptr;
  std::shared_ptr<TapeRows> tape_rows = nullptr;  // null: the forward's
  const View& view() const { return buffer || !recomputed ? buffer.view() : recomputed->view(); }
  Tensor detached() const { return {buffer, -1, split, recomputed, tape_rows}; }
  // What a record saves of it: the value, which its adjoint reads; or only the node, where its gradient goes.
  Tensor saved() const { return {recomputed ? Buffer() : buffer, node, split, recomputed, tape_rows}; }
  Tensor linked() const { return {Buffer(), node}; }
};

// The parameter gradients. Without bins, one backward is the whole batch and writes `gradients`; with bins, several backward passes
// deposit, and finish() turns the bins into gradients.
// A gradient is allocated when it is first written, its bins when a backward first deposits there: by then the
// activations of later layers are freed, and a forward without a backward allocates none.
// Where one backward works in parts of its rows (model/operations/row_tiles.h), it deposits too, between begin_parts() and end_parts().
// With shares, the gradient of a trained parameter is this rank's rows only (the caller has joined all ranks' bins there). With `rows_alone` as well, so
// are the bins between two backwards: the caller joins a parameter's when a backward is done with it, and puts its rows away.
class GradientSet {
 public:
  GradientSet(Backend& backend, const Manifest& manifest, bool persistent_bins, const std::vector<ParameterShare>* shares = nullptr, bool rows_alone = false);
  const View& gradient(ParameterId id);  // +0 where nothing was written
  View bins(ParameterId id);             // whole ones, empty where nothing was deposited; no view without bins
  // With `rows_alone`: adds this rank's rows of the bins, which hold the sum of all ranks there, to those of earlier backwards, and frees the whole.
  void put_rows_away(ParameterId id);
  View kept_bins(ParameterId id);  // what there is between two backwards: the whole, or this rank's rows
  bool finish_at_once() const { return !persistent_bins_ && !in_parts_; }
  // Until end_parts() gradients have bins, which then become the gradients that one backward alone would write. Nothing where bins are there anyway.
  void begin_parts() { in_parts_ = !persistent_bins_; }
  void end_parts();
  // Whether they have memory: something was deposited, or written, since the beginning.
  bool holds_bins(ParameterId id) const { return bins_[static_cast<std::size_t>(id)] || row_bins_[static_cast<std::size_t>(id)]; }
  bool holds_gradient(ParameterId id) const { return static_cast<bool>(gradients_[static_cast<std::size_t>(id)]); }
  void finish();                                                                      // bins -> gradients, where there are bins
  void clear();                                                                       // all gradients +0 and freed, all bins empty
  void drop(ParameterId id) { gradients_[static_cast<std::size_t>(id)] = Buffer(); }  // it is +0 from here on
  const Manifest& manifest() const { return manifest_; }

 private:
  void finish(std::size_t i, const View& bins);
  Backend& backend_;
  const Manifest& manifest_;
  const std::vector<ParameterShare>* shares_;
  const bool persistent_bins_, rows_alone_;
  bool in_parts_ = false;
  std::vector<Buffer> gradients_, bins_, row_bins_;  // row_bins_: of this rank's rows, with rows_alone
};

class Tape {
 public:
  // `gradients` null: the weights are frozen. Then parameters get no gradient, and activations only above an adapter.
  Tape(Backend& backend, GradientSet* gradients) : backend_(backend), gradients_(gradients) {}
  bool frozen() const { return gradients_ == nullptr; }
  GradientSet* gradients() { return gradients_; }
  int new_node() {
    node_gradients_.emplace_back();
    return static_cast<int>(node_gradients_.size()) - 1;
  }
  void record(std::function<void()> backward) { records_.push_back(std::move(backward)); }
  // Adds a gradient to a node (node -1: ignored). The buffer is held and must not be written again.
  void contribute(int node, Buffer gradient);
  // Takes a node's gradient; empty when it received none.
  Buffer take(int node);
  // The gradient of the embedding's rows where its table is also the head's weight: HeadWeight deposits both (kernels/head).
  void set_table_gradient(Buffer dy) { table_gradient_ = std::move(dy); }
  Buffer take_table_gradient() { return std::exchange(table_gradient_, Buffer()); }
  // Replays all records in reverse; each is freed, with the activations it saved, as soon as it is done.
  void backward();

 private:
  Backend& backend_;
  GradientSet* gradients_;
  std::vector<std::function<void()>> records_;
  std::vector<Buffer> node_gradients_;
  Buffer table_gradient_;
};

}  // namespace lockstep
