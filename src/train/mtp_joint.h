// What joint training adds to MtpRank (TrunkShare::gradients): the model's part of a micro-batch on a tape of its own, where the gradients go that the layer's
// losses have by the model's hidden states, embeddings and head. Their order is in docs/numerics.md, "Multi-token prediction". Of a rank with the whole
// model. Only MtpRank's sources include it.
#pragma once
#include <memory>
#include <utility>
#include <vector>

#include "train/mtp_rank.h"

namespace lockstep {

class MtpRank::Joint {
 public:
  Joint(Runtime& runtime, GradientSet& gradients) : runtime_(runtime), gradients_(gradients), tape_(runtime.backend, &gradients) {}

  Tape* tape() { return &tape_; }
  // A forward on the tape, whose records refer to all of it.
  struct Forward {
    std::unique_ptr<const Batch> batch;
    std::unique_ptr<KvCache> cache;  // null: none of its own
    std::unique_ptr<Context> context;
  };
  void keep(Forward forward) { forwards_.push_back(std::move(forward)); }

  // The layer's input with the value of an activation of the model, whose gradient goes there.
  Tensor input(Tape& of_layer, const Tensor& of_model);
  // The node of the layer's first input, of which the row of position p has the model's hidden state of p - 1.
  int hidden_input(Tape& of_layer, const Tensor& hidden);
  // Adds to the gradient of the hidden states, a row each.
  void add_hidden(Buffer dx) { tape_.contribute(hidden_, std::move(dx)); }
  // Adds to the head's gradient what logits of these rows of states have, `dz` [rows, vocabulary]. Each row is deposited by itself, so that nothing depends on
  // which of them come together.
  void add_head(Context& of_model, const View& dz, const View& states, const std::vector<std::int32_t>& rows);
  // After the backward of the layer, whose rows are those of `slices`.
  void backward(Tape& of_layer, const std::vector<SequenceSlice>& slices);

 private:
  Runtime& runtime_;
  GradientSet& gradients_;
  Tape tape_;
  std::vector<Forward> forwards_;
  std::vector<std::pair<int, int>> inputs_;  // nodes: of the layer's tape, and of this one
  int hidden_ = -1, carried_ = -1;           // the same of the hidden states
};

}  // namespace lockstep
