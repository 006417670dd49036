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
  // Makes a model of `owner` with these settings. Errors: those of make_trained_model and TrainingCommons::base_of, resource_exhausted.
  std::unique_ptr<TrainedModel> make(const OnExecutor& on, const std::string& owner, const ModelSettings& settings);
  // Takes over a model that was just made, with its claim.
  void settle(const OnExecutor& on, HostedModel& model, std::unique_ptr<TrainedModel> trained, MemoryLedger::Claim room);
  // Replaces it by a new one that `fill` fills; if that fails, the old one stays.
  void replace(const OnExecutor& on, HostedModel& model, const ModelSettings& settings, const std::function<void(TrainedModel&)>& fill);
  void let_go(const OnExecutor& on, HostedModel& model);      // frees its memory, without writing
  void write_down(const OnExecutor& on, HostedModel& model);  // writes its state to disk if it has changed
  // Called before `wanted` comes into memory: moves the least recently used others to disk if there are too many. Error resource_exhausted.
  void make_place(const OnExecutor& on, const HostedModel& wanted);
  // Whether it should wait a few turns for models whose batches have begun.
  bool gives_way(const OnExecutor& on, HostedModel& model);
  // Moves the least recently used model to disk; if it cannot be written, the next. False: none is left.
  bool rest_one(const OnExecutor& on);
  std::int64_t movable_bytes(const OnExecutor& on);
  // Moves one model of a closed or silent session to disk. True: there may be more; other work may run in between.
  bool rest_one_silent(const OnExecutor& on);

  // Why a submitted operation waits for memory, in words; empty: it does not. Any thread.
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
