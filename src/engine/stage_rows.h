// A step's rows on their way through the stages of a pipeline (docs/ranks.md): hidden states, flags and told experts go from stage to stage, and from
// the last one back to the first, which has the head and samples. Where no stages share the model nothing happens.
//   StageRows rows(backend, sharding, batch, hidden); rows.attach(options); rows.receive(flags, experts); Tensor h = model.forward(context);
//   rows.send_on(h.view(), flags, experts); h = rows.bring_back(h, flags, experts); if (rows.leads()) sample(h);
// Of one step, on the rank's thread. All stages make the same calls.
#pragma once
#include "model/context.h"
#include "model/sharding.h"

namespace lockstep {

class StageRows {
 public:
  // `hidden`: columns of a hidden state.
  StageRows(Backend& backend, const Sharding* sharding, const Batch& batch, std::int64_t hidden);
  StageRows(const StageRows&) = delete;
  StageRows& operator=(const StageRows&) = delete;

  // Whether this rank's stage has segments, and so a forward.
  bool computes() const { return !staged() || stage() < sharding_->stages(); }
  // Whether this is the first stage, which goes on with the hidden states of the last one.
  bool leads() const { return !staged() || stage() == 0; }
  void attach(ForwardOptions& options) { options.stage = computes() && !leads() ? &input_ : nullptr; }
  // Before the forward: what the stage before has. `experts`: of an ExpertRecord, none where nobody asks for them.
  void receive(const View& flags, const View& experts);
  // After it: what this stage has goes to the next one. False: there is none.
  bool send_on(const View& hidden, const View& flags, const View& experts);
  // When all stages are done, all of them together: on the first one the last one's comes back, with its flags and experts. Without stages it is `hidden`.
  Tensor bring_back(const Tensor& hidden, const View& flags, const View& experts);

 private:
  bool staged() const { return sharding_ && sharding_->place().layout.pp > 1; }
  int stage() const { return sharding_->place().stage(); }
  void from_last_to_first(const View& mine, const View& into);

  Backend& backend_;
  const Sharding* sharding_;
  const Batch& batch_;
  std::int64_t hidden_;
  StageInput input_;
};

}  // namespace lockstep
