// What the tape saves of an operation for its adjoint (Context::record, model/tape.h): the inputs' rows, read again in the backward.
//   const View all = in[0];  // input 0 with the rows of the tape
// One forward and its backward, on one thread.
#pragma once
#include <functional>
#include <initializer_list>
#include <vector>

#include "model/batch.h"
#include "model/tape.h"

namespace lockstep {

class Context;

// An input of an operation: a reference for the length of a call, so that serving, which records nothing, copies nothing.
struct Input {
  Input(const Tensor& t) : tensor(t) {}
  const Tensor& tensor;
};
using Inputs = std::initializer_list<Input>;
std::vector<Tensor> saved(Inputs inputs);

// Gradients of an operation's inputs, in their order; an empty buffer, or none at the end: no gradient.
using InputGradients = std::vector<Buffer>;

// The inputs of an operation in the backward, as its record saved them.
class RecordedInputs {
 public:
  RecordedInputs(Context& context, const std::vector<Tensor>& inputs) : context_(context), inputs_(inputs) {}
  // Input i with the rows of the tape, gathered on first use; no view when it was only linked.
  View operator[](std::size_t i) const;
  bool requires_grad(std::size_t i) const { return inputs_[i].node >= 0; }
  // Takes the gradient that input i has already, of the records behind this one; none: an empty buffer. Who takes it returns its sum with their own, in this
  // order: one rounded add an element, as the tape adds them. It may also be another node's, and must not be written. Only where no two inputs are one node.
  Buffer take_gradient(std::size_t i) const;

 private:
  Context& context_;
  const std::vector<Tensor>& inputs_;
};

// Maps the gradient of the output, which must not be written, to those of the inputs.
using Adjoint = std::function<InputGradients(const Buffer& dy, const RecordedInputs& x)>;

// Puts a record on the tape that calls the adjoint with the gradient of `node` and adds what it returns to the inputs' gradients, the last input's
// first. Where the node got no gradient nothing is called; node -1: of a loss, which is called without one.
void record_adjoint(Context& ctx, int node, Inputs inputs, Adjoint adjoint);

// An activation with the rows of the batch: in `buffer`.
Tensor of_rows(const Batch& batch, Buffer buffer);
// The activation with the rows of the tape (Batch::tape_rows): what adjoints work on.
View taped(Context& ctx, const Tensor& x);
// The same of the context's flags; `memory` is theirs where they had to be gathered.
View taped_flags(Context& ctx, Buffer& memory);

}  // namespace lockstep
