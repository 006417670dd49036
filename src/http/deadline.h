// A point in time by which something must have happened, or none. Plain value. Internal to http/.
//   deadline.set(30); if (deadline.passed(now)) ...
#pragma once
#include "api/server_state.h"

namespace lockstep {

class Deadline {
 public:
  using Clock = ServerState::Clock;
  // From now on. 0: there is none.
  void set(double seconds) {
    seconds_ = seconds;
    at_ = seconds <= 0 ? Clock::time_point::max() : Clock::now() + std::chrono::microseconds(static_cast<std::int64_t>(seconds * 1e6));
  }
  bool passed(Clock::time_point now) const { return now >= at_; }
  double seconds() const { return seconds_; }

 private:
  double seconds_ = 0;
  Clock::time_point at_ = Clock::time_point::max();
};

}  // namespace lockstep
