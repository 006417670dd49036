// Runs a model's operations strictly in the order of their sequence numbers, whatever the order of their arrival. An operation waits here until its
// number is next; a number that does not arrive within a time limit is skipped; a repeated number is the same request. Each model has a lane in
// host/training_queue.h. Any thread, except functions that take an OnExecutor.
//   const auto work = [](const OnExecutor&, HostedModel&, const std::string&) { return NumberedOperation::Worked{}; };
//   const std::string request = lanes.submit(owner, model, 7, SentOperation("save"), work);
#pragma once
#include <functional>
#include <memory>
#include <string>

#include "host/models.h"
#include "host/operation.h"
#include "host/sent_operation.h"
#include "host/sessions.h"

namespace lockstep {

class ModelLanes {
 public:
  using MakeOperation = std::function<std::shared_ptr<NumberedOperation>(const std::shared_ptr<HostedModel>& model, const std::string& request)>;

  ModelLanes(const OperationTools& tools, Sessions& sessions, Models& models) : tools_(tools), commons_(tools.commons), sessions_(sessions), models_(models) {}
  ~ModelLanes();
  ModelLanes(const ModelLanes&) = delete;
  ModelLanes& operator=(const ModelLanes&) = delete;

  // Returns the request id. `sent`: the operation's content. `heals`: a lost model accepts it too. Errors: not_found; invalid_argument (the number was used
  // for another operation, the session has ended); resource_exhausted; cancelled; io (the number could not be stored).
  std::string submit(const std::string& owner, const std::string& model, std::int64_t sequence, const SentOperation& sent, NumberedOperation::Work work,
                     bool heals = false);
  std::string place(const std::string& owner, const std::string& model, std::int64_t sequence, const SentOperation& sent, const MakeOperation& make);
  // For an operation that cannot be decoded: its number fails in its turn.
  std::string refuse(const std::string& owner, const std::string& model, std::int64_t sequence, const Error& error);
  // Says which numbers an operation waits for, and for how much longer; empty: none.
  std::string missing_before(const std::string& owner, const std::string& request) const;
  // Drops operations whose turn can never come; `why`, if not empty, becomes their result.
  void forget_waiting(const OnExecutor& on, HostedModel& model, const std::string& why);

 private:
  void run_ready(const std::shared_ptr<HostedModel>& model, ModelState& state);
  // Sets a timer after which the model goes on without an operation that was missing for too long. Does not wait for a running model.
  void watch_gap(const std::shared_ptr<HostedModel>& model, double seconds);
  void look_for_gap(const std::shared_ptr<HostedModel>& model);

  const OperationTools& tools_;
  TrainingCommons& commons_;
  Sessions& sessions_;
  Models& models_;
};

}  // namespace lockstep
