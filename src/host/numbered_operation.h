// An operation of a model with its sequence number, as a step of the model's lane (host/training_queue.h): an optimizer step, a save, or, derived
// from it, a batch (host/operation.h). Its work is called until it is over; its result or its error goes to the request's future, once the operation is
// counted as ended: whoever has a result finds it in the metrics. Any thread, except functions that take an OnExecutor.
//   auto step = std::make_shared<NumberedOperation>(tools, model, request, 7, work, false, "optim_step"); step->run(on);
#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "host/loss_inputs.h"
#include "host/resting.h"
#include "model/value_head.h"

namespace lockstep {

// What operations use.
struct OperationTools {
  TrainingCommons& commons;
  MemoryRoom& memory;
  OpenGradients& gradients;
  Resting& resting;

  // Tokens of the model's next turn.
  std::int64_t turn_tokens(const OnExecutor& on, const HostedModel& model) const {
    return model.work.at(on).turn.tokens(commons.options.tokens_a_step, commons.queue->others_wait());
  }
  // The limits of the model's batches.
  BatchLimits limits(const OnExecutor& on, const HostedModel& model) const {
    const OpenedModel& opened = commons.base_of(on, model.settings()).opened;
    BatchLimits limits = batch_limits(*opened.runtime);
    limits.values = has_value_head(*opened.model);
    return limits;
  }
};

class NumberedOperation : public TrainingQueue::Step, public std::enable_shared_from_this<NumberedOperation> {
 public:
  // How a step of an operation ended: it goes on, or is over with a result; with neither somebody else tells the result.
  struct Worked {
    bool again = false;
    std::optional<Outcome> result;
  };
  // One step of an operation.
  using Work = std::function<Worked(const OnExecutor& on, HostedModel& model, const std::string& request)>;

  // `kind`: of its pieces, for metrics; a literal.
  NumberedOperation(const OperationTools& tools, std::shared_ptr<HostedModel> model, std::string request, std::int64_t sequence, Work work, bool heals,
                    const char* kind)
      : tools_(tools), model_(std::move(model)), request_(std::move(request)), sequence_(sequence), heals_(heals), kind_(kind), work_(std::move(work)) {}
  bool run(const OnExecutor& on) override;
  const char* kind() const override { return kind_; }
  virtual bool may_run_early() const { return false; }

  const std::string& request() const { return request_; }
  // It is put into its lane before its turn. Called before that.
  void enter_early() { early_entry_ = true; }
  // An operation before it changes the model, so it must wait for its turn.
  void do_not_run_early() { may_be_early_ = false; }

 protected:
  void check_lost(const OnExecutor& on) const;
  void done(const OnExecutor& on);  // it is over; called before its result or error is told
  bool in_turn(const OnExecutor&) const { return !early_entry_; }
  bool may_be_early() const { return may_be_early_; }
  void leave(const OnExecutor&) { early_entry_ = false; }  // its entry in the lane ends; the next one is its turn

  const OperationTools& tools_;
  const std::shared_ptr<HostedModel> model_;
  const std::string request_;
  const std::int64_t sequence_;
  const bool heals_ = false;

 private:
  const char* const kind_;
  Work work_;
  bool early_entry_ = false;
  std::atomic<bool> may_be_early_{true};
};

}  // namespace lockstep
