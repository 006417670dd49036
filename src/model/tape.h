// The tape: what a forward did, to be replayed in reverse. Holds the gradients of activations while they are needed.
// An activation used n times receives its gradients by plain adds in reverse record order.
#pragma once
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/backend.h"
#include "model/manifest.h"
#include "model/parameter_share.h"

namespace lockstep {

// Where ranks cut the columns of an activation: rank r has [bounds[r], bounds[r + 1]). Null: each has all of them.
using ColumnSplit = std::shared_ptr<const std::vector<std::int64_t>>;

// An activation that costs little to make again (a norm, a product of elements): records hold the way to it instead of its
// buffer. The first one that asks makes it; it lives until the last one is done.
class Remade {
 public:
  explicit Remade(std::function<Buffer()> make) : make_(std::move(make)) {}
  const View& view() {
    if (!buffer_) buffer_ = make_();
    return buffer_.view();
  }

 private:
  std::function<Buffer()> make_;
  Buffer buffer_;
};

// The rows of an activation as the backward sees them, where sequences share rows in the forward (model/batch.h). The first record
// that asks makes them; they live until the last one is done.
struct TapeRows {
  View source;  // i32 [rows of the tape, 1]: the activation's row of each
  Buffer buffer;
};

// An activation: its buffer, and its node on the tape (-1: no gradient reaches it). With a split the buffer is this rank's columns,
// and so is the gradient that reaches the node. A gradient has the rows of the tape.
struct Tensor {
  Buffer buffer;
  int node = -1;
  ColumnSplit split = {};
  std::shared_ptr<Remade> remade = nullptr;
  std::shared_ptr<TapeRows> tape_rows = nullptr;  // null: the forward's
  const View& view() const { return buffer || !remade ? buffer.view() : remade->view(); }
  Tensor detached() const { return {buffer, -1, split, remade, tape_rows}; }
  // What a record should hold of it: what its adjoint reads, or no more than where its gradient goes.
  Tensor kept() const { return {remade ? Buffer() : buffer, node, split, remade, tape_rows}; }
  Tensor linked() const { return {Buffer(), node}; }
};

// Where parameter gradients go. Without bins, one backward is the whole batch and writes `gradients`; with bins, backward passes
// deposit, and finish() turns the bins into gradients.
// A gradient takes memory from the moment that something writes it, its bins from the first backward that deposits there: by then the
// activations of later layers are gone, and a forward whose backward never comes has opened nothing.
// With shares, the gradient of a trained parameter is this rank's rows alone (the caller has joined all ranks' bins there).
class GradientSet {
 public:
  GradientSet(Backend& backend, const Manifest& manifest, bool persistent_bins, const std::vector<ParameterShare>* shares = nullptr);
  const View& gradient(ParameterId id);  // +0 where nothing was written
  View bins(ParameterId id);             // empty ones where nothing was deposited; no view without bins
  bool finish_at_once() const { return !persistent_bins_; }
  void finish();      // bins -> gradients, where there are bins
  void clear();       // all gradients +0 and without memory, all bins empty
  void drop(ParameterId id) { gradients_[static_cast<std::size_t>(id)] = Buffer(); }  // it is +0 from here on
  const Manifest& manifest() const { return manifest_; }

 private:
  Backend& backend_;
  const Manifest& manifest_;
  const std::vector<ParameterShare>* shares_;
  const bool persistent_bins_;
  std::vector<Buffer> gradients_, bins_;
};

class Tape {
 public:
  // `gradients` null: the weights are frozen. Parameters get no gradient then, and activations only above an adapter.
  Tape(Backend& backend, GradientSet* gradients) : backend_(backend), gradients_(gradients) {}
  bool frozen() const { return gradients_ == nullptr; }
  GradientSet* gradients() { return gradients_; }
  int new_node() {
    node_gradients_.emplace_back();
    return static_cast<int>(node_gradients_.size()) - 1;
  }
  void record(std::function<void()> backward) { records_.push_back(std::move(backward)); }
  // Adds a gradient to a node (node -1: dropped). The buffer is kept, never written again.
  void contribute(int node, Buffer gradient);
  // The gradient that has reached a node; empty when none has.
  Buffer take(int node);
  // The gradient of the embedding's rows where its table is also the head's weight: HeadWeight deposits both (kernels/head).
  void keep_table_gradient(Buffer dy) { table_gradient_ = std::move(dy); }
  Buffer take_table_gradient() { return std::exchange(table_gradient_, Buffer()); }
  // Replays all records in reverse; each is dropped, with the activations it held, as soon as it is done.
  void backward();

 private:
  Backend& backend_;
  GradientSet* gradients_;
  std::vector<std::function<void()>> records_;
  std::vector<Buffer> node_gradients_;
  Buffer table_gradient_;
};

}  // namespace lockstep
