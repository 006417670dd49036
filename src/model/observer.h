// Called with each operation's output right after it is launched: how parity finds the first operation in which two runs differ, and how tests
// count what was touched. Not part of any result; a context without an observer calls nothing. An observer that reads waits for the stream. Used
// by the thread that runs the forward.
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
  // The following operations run on this backend.
  virtual void begin_forward(Backend& backend, const Batch& batch) = 0;
  virtual void operation(const Operation& operation) = 0;
  // A checkpointed segment is recomputed; its operations follow.
  virtual void replay_segment() {}
};

}  // namespace lockstep
