// Moves idle models to disk and reads them back, with the gradients that no step has taken. A model is moved when another needs its memory, or when its
// session is closed or silent. So --max-models bounds how many models are in memory, not how many are open. Any thread, except functions that take
// an OnExecutor.
//   TrainedModel& trained = resting.trained(on, model);   // made, or read from disk; others may have gone there
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "host/models.h"
#include "host/open_gradients.h"
#include "host/sessions.h"

namespace lockstep {

class Resting {
 public:
  Resting(TrainingCommons& commons, const Sessions& sessions, Models& models, MemoryRoom& memory, OpenGradients& gradients)
      : commons_(commons), sessions_(sessions), models_(models), memory_(memory), gradients_(gradients) {}

  // Errors: resource_exhausted, corrupt_file, io.
  TrainedModel& trained(const OnExecutor& on, HostedModel& model);
  // A new one of these settings. Errors: those of make_trained_model and TrainingCommons::base_of, resource_exhausted.
  std::unique_ptr<TrainedModel> make(const OnExecutor& on, const ModelSettings& settings);
  // A model that was just made stands in `room`.
  void settle(const OnExecutor& on, HostedModel& model, std::unique_ptr<TrainedModel> trained, MemoryLedger::Claim room);
  // Another takes its place: `fill` gives it its numbers. Where that fails the one that was there stays.
  void replace(const OnExecutor& on, HostedModel& model, const ModelSettings& settings, const std::function<void(TrainedModel&)>& fill);
  void let_go(const OnExecutor& on, HostedModel& model);      // of memory; its state stays where it is on disk
  void write_down(const OnExecutor& on, HostedModel& model);  // what changed since its state on disk
  // Before `wanted` comes to memory: where there are too many, others go to disk, those first that were not used for the longest time. Error
  // resource_exhausted.
  void make_place(const OnExecutor& on, const HostedModel& wanted);
  // Whether it waits for models whose batches have begun, for some turns.
  bool gives_way(const OnExecutor& on, HostedModel& model);
  // The one that was not used for the longest time goes to disk; where it cannot be written, the next. False: there is none.
  bool rest_one(const OnExecutor& on);
  std::int64_t movable_bytes(const OnExecutor& on);
  // One model of sessions that are closed, or not heard from. True: there may be more; others' work goes between.
  bool rest_one_silent(const OnExecutor& on);

  // Why an operation that was submitted waits, beside others' turns: in words; empty: it does not. Any thread.
  std::string why_paused(const std::string& owner, const std::string& request) const;

 private:
  std::vector<std::shared_ptr<HostedModel>> idle(const OnExecutor& on);  // those that may go to disk, the least used first
  void rest(const OnExecutor& on, HostedModel& model);
  bool try_rest(const OnExecutor& on, HostedModel& model);  // false: it could not be written, and stays

  TrainingCommons& commons_;
  const Sessions& sessions_;
  Models& models_;
  MemoryRoom& memory_;
  OpenGradients& gradients_;
};

}  // namespace lockstep
