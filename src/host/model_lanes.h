// Runs a model's operations strictly in the order of their sequence numbers, whatever the order of their arrival. An operation waits here until its
// number is next; a number that does not arrive within a time limit is skipped; a repeated number is the same request. Each model has a lane in
// host/training_queue.h. Any thread, except functions that take an OnExecutor.
//   const std::string request = lanes.submit(owner, model, 7, SentOperation("save"), [](on, model, request) { ...; return false; });
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

  // Returns its request id. `sent`: what it asks for. `heals`: it is taken by a model that is lost, too. Errors: not_found; invalid_argument (the number
  // stands for another operation, the session takes no more work); resource_exhausted; cancelled; io (the number could not be written down).
  std::string submit(const std::string& owner, const std::string& model, std::int64_t sequence, const SentOperation& sent, NumberedOperation::Work work,
                     bool heals = false);
  std::string place(const std::string& owner, const std::string& model, std::int64_t sequence, const SentOperation& sent, const MakeOperation& make);
  // A number whose operation cannot even be read: it fails in its turn.
  std::string refuse(const std::string& owner, const std::string& model, std::int64_t sequence, const Error& error);
  // Of an operation that waits for numbers before it which have not come: which, and for how long more; empty: it waits for none.
  std::string missing_before(const std::string& owner, const std::string& request) const;
  // Operations whose turn can never come hold their model no longer; `why`, if it is not empty, is told their clients.
  void forget_waiting(const OnExecutor& on, HostedModel& model, const std::string& why);

 private:
  void run_ready(const std::shared_ptr<HostedModel>& model, ModelState& state);
  // In so many seconds the model is looked at: it goes on without an operation that was missing for too long. Waits for no model that is at work.
  void watch_gap(const std::shared_ptr<HostedModel>& model, double seconds);
  void look_for_gap(const std::shared_ptr<HostedModel>& model);

  const OperationTools& tools_;
  TrainingCommons& commons_;
  Sessions& sessions_;
  Models& models_;
};

}  // namespace lockstep
