// An observer of a forward: called with each operation's output right after its launch. Parity uses it to find the first operation in which two runs
// differ. It changes no result, and a context without one calls nothing. An observer that reads values waits for the stream. Used by the thread that
// runs the forward.
//   struct Names final : OperationObserver {
//     void begin_forward(Backend&, const Batch&) override {}
//     void operation(const Operation& done) override { names.emplace_back(done.name); }
//     std::vector<std::string> names;
//   };
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
