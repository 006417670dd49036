// Sees that a process dies, which a message passing library may not say: a TCP connection from each process to process 0, which the system closes
// with the process, whatever ends it.
//   ProcessWatch watch(mail);   // all processes; from now on the mail's waits fail with "process 1 (host b, pid 7) ended"
// One thread of its own. Process 0 watches all, the others process 0. A host that falls silent is not seen.
#pragma once
#include <memory>

#include "parallel/mail.h"

namespace lockstep {

class ProcessWatch {
 public:
  // Where process 0 cannot be reached so, a warning says that nobody is watched. Errors: those of the mail.
  explicit ProcessWatch(ProcessMail& mail);
  // A good-bye: the others see no loss in it. The mail is gone.
  ~ProcessWatch();
  ProcessWatch(const ProcessWatch&) = delete;
  ProcessWatch& operator=(const ProcessWatch&) = delete;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep
