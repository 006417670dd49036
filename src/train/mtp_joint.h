// What joint training adds to MtpRank (TrunkShare::gradients): the rank's part of the model in a micro-batch on a tape of its own, where the gradients go
// that the layer's losses have by the model's hidden states, embeddings and head. Their order is in docs/numerics.md, "Multi-token prediction". Stages
// of a pipeline have the gradients sent to them that the one with the layer makes. Only MtpRank's sources include it.
#pragma once
#include <memory>
#include <utility>
#include <vector>

#include "train/mtp_rank.h"

namespace lockstep {

class MtpRank::Joint {
 public:
  // `sharding` null: this rank has the whole model.
  Joint(Runtime& runtime, GradientSet& gradients, const Sharding* sharding)
      : runtime_(runtime), gradients_(gradients), sharding_(sharding), tape_(runtime.backend, &gradients) {}

  Tape* tape() { return &tape_; }
  // A forward on the tape, whose records refer to all of it.
  struct Forward {
    std::unique_ptr<const Batch> batch;
    std::unique_ptr<KvCache> cache;     // null: none of its own
    std::unique_ptr<StageInput> stage;  // null: it begins with the input embedding
    std::unique_ptr<Context> context;
  };
  void keep(Forward forward) { forwards_.push_back(std::move(forward)); }
  // The forward of this rank's segments, and what the last of them said.
  void keep_segments(Forward forward, const Tensor& output);

  // The layer's input with the value of an activation of the model, whose gradient goes to `node` of this tape, on the rank that has it (else -1). `of_layer`
  // null: no layer is here. All stages of the replica call it for the same activations.
  Tensor input(Tape* of_layer, const Tensor& value, int node);
  // The node of the layer's first input, of which the row of position p has the model's hidden state of p - 1.
  int hidden_input(Tape& of_layer) { return carried_ = of_layer.new_node(); }
  // Adds to the gradient of the hidden states, a row each.
  void add_hidden(Buffer dx) { tape_.contribute(output_, std::move(dx)); }
  // Adds to the head's gradient what logits of these rows of states have, `dz` [rows, vocabulary]. Each row is deposited by itself, so that nothing depends on
  // which of them come together.
  void add_head(Context& of_model, const View& dz, const View& states, const std::vector<std::int32_t>& rows);
  // After the backward of the layer, whose rows are those of `slices`; null: no layer is here.
  void backward(Tape* of_layer, const std::vector<SequenceSlice>& slices);

 private:
  bool staged() const;  // stages share the model
  Buffer room(std::int64_t rows) const;
  Buffer embedded_gradient(Buffer of_leaf, std::int64_t rows);
  void receive_output(std::int64_t rows);
  void send_input(std::int64_t rows);
  Buffer behind(const Buffer& dx, const std::vector<SequenceSlice>& slices);

  Runtime& runtime_;
  GradientSet& gradients_;
  const Sharding* sharding_;
  Tape tape_;
  std::vector<Forward> forwards_;
  std::vector<std::pair<int, int>> inputs_;  // nodes: of the layer's tape, and of this one
  int output_ = -1, carried_ = -1;           // of what this rank's segments said, on this tape; and of the hidden states, on the layer's
  StageInput* stage_ = nullptr;              // of this rank's segments
};

}  // namespace lockstep
