#include "parallel/processes.h"

#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "parallel/mpi_wire.h"
#include "parallel/nccl_wire.h"
#include "parallel/process_ranks.h"
#include "parallel/process_watch.h"
#include "parallel/thread_ranks.h"

namespace lockstep {

namespace {
std::unique_ptr<ProcessWatch> watch_of_this_process;  // outlives the mail, which asks it
std::unique_ptr<ProcessMail> mail_of_this_process;
std::unique_ptr<DeviceWire> device_wire_of_this_process;

void leave_processes() {
  device_wire_of_this_process.reset();
  mail_of_this_process.reset();
  watch_of_this_process.reset();
}
}  // namespace

std::vector<std::string> transport_names() { return {"threads", "mpi", "nccl"}; }

void join_processes(const ProcessSettings& settings) {
  if (settings.transport == "threads") {
    if (const char* started = std::getenv("OMPI_COMM_WORLD_SIZE"); started && std::string_view(started) != "1")
      fail(ErrorCode::invalid_argument, "transport is '{}' in one of {} processes that mpirun started, each of which would make the whole run; allowed is mpi",
           settings.transport, started);
    return;
  }
  if (mail_of_this_process) return;
  if (!started_by_mpi())
    fail(ErrorCode::invalid_argument, "transport is '{0}' in a process that mpirun did not start; allowed is mpirun -n N lockstep ... --transport {0}",
         settings.transport);
  std::unique_ptr<DeviceWire> device = settings.transport == "nccl" ? load_nccl_wire() : nullptr;
  mail_of_this_process = std::make_unique<ProcessMail>(load_mpi_wire());
  device_wire_of_this_process = std::move(device);
  watch_of_this_process = std::make_unique<ProcessWatch>(*mail_of_this_process, std::chrono::seconds(settings.rank_timeout));
  std::atexit(leave_processes);  // behind the last word of the command, and before what the library itself does at the end
}

ProcessMail* joined_mail() { return mail_of_this_process.get(); }

DeviceWire* joined_device_wire() { return device_wire_of_this_process.get(); }

std::string lost_process() { return mail_of_this_process ? mail_of_this_process->lost() : std::string(); }

std::unique_ptr<Ranks> make_ranks(const RankLayout& layout) {
  if (mail_of_this_process) return std::make_unique<ProcessRanks>(layout, *mail_of_this_process, device_wire_of_this_process.get());
  return std::make_unique<ThreadRanks>(layout);
}

}  // namespace lockstep
