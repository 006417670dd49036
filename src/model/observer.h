// Sees what each operation of a forward wrote, right after it was launched: how parity finds the first operation that two runs
// disagree on, and how tests count what was touched. Not part of any result; a context without one calls nothing.
// An observer that reads waits for the stream. Used by the thread that runs the forward.
#pragma once
#include <string_view>

#include "tensor/view.h"

namespace lockstep {

class Backend;
class Batch;

class OperationObserver {
 public:
  struct Operation {
    std::string_view name;       // of the context's operation: "linear", "attention", ...
    std::string_view parameter;  // the weight it uses (Parameter::name); empty: none
    int layer = -1;              // where the call itself says; else -1 (the parameter's name may tell)
    View output;                 // [T, *]
    View slot_of;                // i32 [T, k]: the output's rows are the experts' slots; none: they are the batch's rows
  };
  virtual ~OperationObserver() = default;
  // The backend is the one that the following operations are on.
  virtual void begin_forward(Backend& backend, const Batch& batch) = 0;
  virtual void operation(const Operation& operation) = 0;
  // A checkpointed segment is computed again; its operations follow.
  virtual void replay_segment() {}
};

}  // namespace lockstep
