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

  // Why a request waits for its key's share of the device, since device_use() was asked: others had it, in words; empty: that is not why.
  Executor::Use device_use(const std::string& owner, const std::string& request) const;
  std::string without_share(const std::string& owner, const std::string& request, const Executor::Use& before) const;
  // How many models have work and wait for a place in memory, by the key's name as metrics have it.
  std::map<std::string, std::int64_t> models_waiting() const;

 private:
  Executor::Account account_of(const std::string& owner, const std::string& request) const;  // that a request's work is of

  TrainingCommons& commons_;
  const Models& models_;
  const Samplers& samplers_;
};

}  // namespace lockstep
