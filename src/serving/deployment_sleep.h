// Scale to zero: when a deployment that can be loaded again (ModelDeployment::load) leaves memory, and what a request for one that is not there is
// told. Plain values; any thread.
//   deployments.set_sleep({.idle_seconds = 600, .hold_seconds = 30});
//   try { deployments.awake("b"); } catch (const AsleepError& asleep) { retry_after(asleep.seconds()); }
#pragma once
#include <string>
#include <utility>

#include "base/error.h"

namespace lockstep {

// idle_seconds: without a request for that long it leaves memory; 0: never. hold_seconds: a request for a sleeping one waits at most that long.
struct SleepSettings {
  double idle_seconds = 0, hold_seconds = 0;
};

// The deployment is asleep; asked again after seconds() it is probably loaded.
class AsleepError : public Error {
 public:
  AsleepError(std::string message, double seconds) : Error(ErrorCode::resource_exhausted, std::move(message)), seconds_(seconds) {}
  double seconds() const { return seconds_; }

 private:
  double seconds_;
};

}  // namespace lockstep
