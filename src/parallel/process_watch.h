// Notices when a process dies, which a message passing library may not report: each process has a TCP connection to process 0, which the system
// closes when the process ends. Both ends send a byte twice a second, so a stopped process and an unreachable host are noticed too. It runs on a
// thread of its own, so a process that computes is not taken for dead. Process 0 watches all, the others watch process 0.
//   ProcessWatch watch(mail, std::chrono::seconds(60));   // from now on the mail's waits may fail with "process 1 (host b, pid 7) ended"
#pragma once
#include <chrono>
#include <memory>

#include "parallel/mail.h"

namespace lockstep {

class ProcessWatch {
 public:
  // A process that sends nothing for longer than `silence` counts as lost. One that cannot be connected is not watched, which a warning in the log
  // says. Errors: those of the mail.
  ProcessWatch(ProcessMail& mail, std::chrono::seconds silence);
  // Sends a good-bye, so that the others do not count this process as lost. The mail is destroyed before.
  ~ProcessWatch();
  ProcessWatch(const ProcessWatch&) = delete;
  ProcessWatch& operator=(const ProcessWatch&) = delete;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep
