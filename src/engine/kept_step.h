// Stores the layer outputs of one step for the requests that ask for it (Request::keep_forward): copies the values of their rows to the pages of
// their texts (model/kept_text.h), and makes them available to readers once the step has succeeded.
//   KeptStep kept(backend, forwards, identity, plan); kept.attach(options); ...forward...; kept.enter(flags);
// A row that attends to keys of several versions of the weights is not stored. Used by the thread that runs the step.
#pragma once
#include "engine/scheduler.h"
#include "model/context.h"
#include "model/kept_text.h"

namespace lockstep {

class KeptStep final : public RowSink {
 public:
  // `forwards` null: nothing is kept. `identity`: of the whole weights (KeptForwards::Root).
  KeptStep(Backend& backend, const std::shared_ptr<KeptForwards>& forwards, std::uint64_t identity, const std::vector<PlannedSlice>& plan);
  void attach(ForwardOptions& options);
  void output(std::int64_t value, const View& rows, const Buffer& memory) override;
  // `flags`: of all rows of the forward, 0: sound.
  void enter(const std::vector<std::int32_t>& flags);

 private:
  struct Slice {
    const PlannedSlice* planned = nullptr;
    std::int64_t row = 0;  // its first in the forward
  };
  struct Copy {
    KeptForwards::RowsPointer page;
    std::int64_t row = 0, first = 0, count = 0;  // from a row of the forward on, to a row of the page
  };

  Backend& backend_;
  KeptForwards* forwards_;
  std::vector<Slice> slices_;
  std::vector<Copy> copies_;
};

}  // namespace lockstep
