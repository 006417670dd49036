// Why a request waits, in words, for polls, the page and metrics: the device is used by others. (A model that waits for memory: Resting::why_paused;
// a missing sequence number: ModelLanes::missing_before.) Any thread.
//   const Executor::Use before = reasons.device_use(owner, request); ... reasons.without_share(owner, request, before);
#pragma once
#include <map>
#include <string>

#include "host/models.h"
#include "host/samplers.h"

namespace lockstep {

class WaitingReasons {
 public:
  WaitingReasons(TrainingCommons& commons, const Models& models, const Samplers& samplers) : commons_(commons), models_(models), samplers_(samplers) {}

  // A sentence when a request has waited for the device since device_use() because of other keys; empty: it has not.
  Executor::Use device_use(const std::string& owner, const std::string& request) const;
  std::string without_share(const std::string& owner, const std::string& request, const Executor::Use& before) const;
  // How many models with work wait for memory, by the key's name in metrics.
  std::map<std::string, std::int64_t> models_waiting() const;

 private:
  Executor::Account account_of(const std::string& owner, const std::string& request) const;  // of a request's work

  TrainingCommons& commons_;
  const Models& models_;
  const Samplers& samplers_;
};

}  // namespace lockstep
