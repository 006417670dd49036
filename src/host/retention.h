// Removes what clients have left behind: sessions that were not heard from for long, with their models, samplers and custom losses, and snapshots without a
// name that were not sampled. Models of silent sessions are moved to disk first. Checkpoints stay until they are deleted or expire. Times are of a
// monotonic clock, which begins anew with each start of the server. Any thread, except functions that take an OnExecutor.
//   retention.look();   // whoever comes in
#pragma once
#include <chrono>
#include <set>
#include <string>

#include "host/custom_losses.h"
#include "host/model_life.h"

namespace lockstep {

class Retention {
 public:
  struct Registries {
    Sessions& sessions;
    Models& models;
    ModelLife& model_life;
    Resting& resting;
    Samplers& samplers;
    Checkpoints& checkpoints;
    CustomLosses& custom_losses;
  };
  Retention(TrainingCommons& commons, const Registries& registries)
      : commons_(commons), to_(registries), looked_(std::in_place, Looked{commons.options.clock(), commons.options.clock()}) {}

  // Checks whether a clean-up is due, and starts it on the executor. Called on every request; does nothing while another call checks. Does not wait.
  void look();
  // Moves models of finished or silent sessions to disk, one at a time.
  void rest_silent();

 private:
  using Clock = std::chrono::steady_clock;
  struct Looked {
    Clock::time_point swept, for_silent;
  };
  bool remove_forgotten(const OnExecutor& on);  // true: there may be more
  void remove_session(const SessionRecord& session);

  TrainingCommons& commons_;
  const Registries to_;
  Guarded<Looked> looked_;
  OfExecutor<std::set<std::string>> unloading_;  // models of forgotten sessions
};

}  // namespace lockstep
