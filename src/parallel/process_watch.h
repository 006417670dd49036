// Sees that a process dies, which a message passing library may not say: a TCP connection from each process to process 0, which the system closes
// with the process, whatever ends it. Both ends say a word twice a second, so that one that is stopped, and a host that falls silent, is seen too.
//   ProcessWatch watch(mail, std::chrono::seconds(60));   // all processes; from now on the mail's waits fail with "process 1 (host b, pid 7) ended"
// One thread of its own, so that computing is no silence. Process 0 watches all, the others process 0.
#pragma once
#include <chrono>
#include <memory>

#include "parallel/mail.h"

namespace lockstep {

class ProcessWatch {
 public:
  // Who says nothing for longer than `silence` is lost. Where process 0 cannot be reached so, a warning says that nobody is watched. Errors: those
  // of the mail.
  ProcessWatch(ProcessMail& mail, std::chrono::seconds silence);
  // A good-bye: the others see no loss in it. The mail is gone.
  ~ProcessWatch();
  ProcessWatch(const ProcessWatch&) = delete;
  ProcessWatch& operator=(const ProcessWatch&) = delete;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep
