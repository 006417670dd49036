// Operations of models as steps of their lanes (host/training_queue.h). A BatchOperation is a forward or a forward_backward; each turn runs a piece of it,
// in one pass with pieces of other models where possible.
// A batch may run early. Example: a client sends the chunks of a call in the order 2, 3, 1; 2 and 3 are computed at once, and their results are held
// until 1 is done. The result is the same, since gradients are sums whose bits do not depend on order. If the late operation changes something
// else (an optimizer step, a load), the gradients of what ran early are dropped, and it runs again in its turn. Early work is only done while the model
// has no other gradients, so that dropping them all is right.
// Functions that take an OnExecutor alone touch what it holds; the others may be called by any thread.
//   auto batch = std::make_shared<BatchOperation>(tools, model, request, 7, data, encode); batch->run(on);
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "host/numbered_operation.h"
#include "train/losses.h"
#include "train/open_batch.h"

namespace lockstep {

class BatchOperation : public NumberedOperation {
 public:
  BatchOperation(const OperationTools& tools, std::shared_ptr<HostedModel> model, std::string request, std::int64_t sequence, TrainingBatch batch,
                 Encode<TrainingOutput> encode)
      : NumberedOperation(tools, std::move(model), std::move(request), sequence, nullptr, false, "batch"),
        batch_(std::move(batch)),
        encode_(std::move(encode)) {}
  bool run(const OnExecutor& on) override;
  Offer offer(const OnExecutor& on) override;
  std::vector<bool> run_with(const OnExecutor& on, const std::vector<Step*>& others) override;
  bool may_run_early() const override { return true; }

  // Whether its gradients are early, so that an operation before it may undo them; `next`: the next sequence number.
  bool stray(const OnExecutor&, std::int64_t next) const { return !forward() && (sequence_ >= next || !may_be_early()); }
  // Undoes it. True: it had made gradients.
  bool reset(const OnExecutor& on);

 private:
  bool run_piece(const OnExecutor& on);
  bool may_compute(const OnExecutor& on) const;
  TrainedModel& prepare(const OnExecutor& on);  // and chooses the next piece
  std::int64_t piece_tokens() const;
  TrainedModel& open_piece(const OnExecutor& on);
  bool close_piece(const OnExecutor& on, std::vector<std::vector<float>>&& logprobs);
  void tell(const OnExecutor& on);
  void failed(const OnExecutor& on, const std::exception& error);
  bool forward() const { return batch_.forward_only; }
  bool evaluates() const { return forward() && prepared_->loss.kind != LossKind::none && prepared_->loss.kind != LossKind::cross_entropy; }
  bool leave_early(const OnExecutor& on);  // true: it was among those that ran early

  TrainingBatch batch_;
  const Encode<TrainingOutput> encode_;
  std::optional<PreparedBatch> prepared_;
  std::vector<TrainSequence> piece_;
  std::vector<std::size_t> places_;
  TurnRoom room_;                   // of the piece, while its turn lasts
  std::size_t next_ = 0, end_ = 0;  // sequences: the next piece
  bool begun_ = false, told_ = false;
  ForwardBackwardResult result_;        // of a forward
  std::optional<OpenBatch> evaluated_;  // of a forward with a policy's loss
  std::optional<Outcome> held_;         // its result, before its turn
};

}  // namespace lockstep
