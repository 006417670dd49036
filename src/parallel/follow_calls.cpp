#include "parallel/follow_calls.h"

#include <csignal>

#include "base/log.h"
#include "parallel/processes.h"

namespace lockstep {

bool follow_calls(const std::function<PerformCall(ProcessMail&)>& make) {
  ProcessMail* mail = joined_mail();
  if (!mail || mail->process() == 0) return false;
  // mpirun passes signals on to all: process 0 saves, and the others go when it has gone.
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) std::signal(signal, SIG_IGN);
  const PerformCall perform = make(*mail);
  // An error in a call is told to all by the ranks, or is the same in all, or is told to process 0 here; it says it.
  while (const std::optional<std::string> call = mail->next_call()) {
    try {
      perform(*call);
    } catch (const std::exception& e) {
      log_debug("a call of process 0 failed", {{"process", mail->process()}, {"error", e.what()}});
      mail->fail_call(e.what());
    }
  }
  return true;
}

}  // namespace lockstep
