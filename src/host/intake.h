// Stops a training service from taking new work without losing what was being submitted. A submitter holds an Entry until its work is in a queue; close()
// returns when no entry is held (at once if it was closed before), so that the queues then have everything that was accepted. Lock-free. Any thread.
//   const Intake::Entry entry = intake.enter(); entry.check(); queue.submit(...);      if (intake.close()) wait_for(queue);
#pragma once
#include <atomic>
#include <chrono>
#include <thread>

#include "base/error.h"

namespace lockstep {

class Intake {
 public:
  class Entry {
   public:
    ~Entry() { --intake_.inside_; }
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;
    // Error cancelled: the service is stopping; `remedy` (if not empty) says what the client can do.
    void check(const char* remedy = "") const {
      if (closed_) fail(ErrorCode::cancelled, "the server stops{}", remedy);
    }
    bool is_open() const { return !closed_; }

   private:
    friend class Intake;
    explicit Entry(Intake& intake) : intake_(intake), closed_((++intake.inside_, intake.closed_.load())) {}
    Intake& intake_;
    const bool closed_;
  };

  Entry enter() { return Entry(*this); }
  bool closed() const { return closed_; }
  // Waits until no Entry is held. False, at once: it was closed before. Not to be called with an Entry held.
  bool close() {
    if (closed_.exchange(true)) return false;
    while (inside_ > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return true;
  }

 private:
  std::atomic<std::int64_t> inside_{0};
  std::atomic<bool> closed_{false};
};

}  // namespace lockstep
