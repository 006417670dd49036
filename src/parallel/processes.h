// The processes that mpirun started to share a run's ranks, this one among them. Joined once, by the main thread, before others ask; left when the
// program ends.
//   join_processes({.transport = "mpi"}); if (ProcessMail* mail = joined_mail()) ...; std::unique_ptr<Ranks> ranks = make_ranks(layout);
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "parallel/device_wire.h"
#include "parallel/mail.h"
#include "parallel/ranks.h"

namespace lockstep {

std::vector<std::string> transport_names();  // threads, mpi, nccl
struct ProcessSettings {
  std::string transport = "threads";
  std::int64_t rank_timeout = 60;  // seconds of silence after which a process counts as lost
};
// "threads": nothing happens. "nccl": as "mpi", and memory of GPUs goes by NCCL. Errors: those of load_mpi_wire and load_nccl_wire; invalid_argument for "mpi"
// and "nccl" in a process that mpirun did not start, and for "threads" in one of several that it did.
void join_processes(const ProcessSettings& settings);
// Null: this process is alone.
ProcessMail* joined_mail();
// Null: what devices hold goes by mail as well.
DeviceWire* joined_device_wire();
// The process that was lost, for callers that are not in a wait that would fail: "process 1 (host b, pid 7) ended without a word"; empty: none.
std::string lost_process();
// Threads of this process, or of the joined ones.
std::unique_ptr<Ranks> make_ranks(const RankLayout& layout);

}  // namespace lockstep
