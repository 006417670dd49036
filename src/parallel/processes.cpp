#include "parallel/processes.h"

#include "base/error.h"
#include "parallel/mpi_wire.h"
#include "parallel/process_ranks.h"
#include "parallel/process_watch.h"
#include "parallel/thread_ranks.h"

namespace lockstep {

namespace {
std::unique_ptr<ProcessWatch> watch_of_this_process;  // outlives the mail, which asks it
std::unique_ptr<ProcessMail> mail_of_this_process;
}  // namespace

std::vector<std::string> transport_names() { return {"threads", "mpi"}; }

void join_processes(const std::string& transport) {
  if (transport != "mpi" || mail_of_this_process) return;
  if (!started_by_mpi())
    fail(ErrorCode::invalid_argument, "transport is 'mpi' in a process that mpirun did not start; allowed is mpirun -n N lockstep ... --transport mpi");
  mail_of_this_process = std::make_unique<ProcessMail>(load_mpi_wire());
  watch_of_this_process = std::make_unique<ProcessWatch>(*mail_of_this_process);
}

ProcessMail* joined_mail() { return mail_of_this_process.get(); }

std::unique_ptr<Ranks> make_ranks(const RankLayout& layout) {
  if (mail_of_this_process) return std::make_unique<ProcessRanks>(layout, *mail_of_this_process);
  return std::make_unique<ThreadRanks>(layout);
}

}  // namespace lockstep
