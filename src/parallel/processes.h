// This process among those that mpirun started, if it is one of several that share a run's ranks.
//   join_processes("mpi"); if (ProcessMail* mail = joined_mail()) ...; std::unique_ptr<Ranks> ranks = make_ranks(layout);
// Joined once, by the main thread, before others ask; left when the program ends.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "parallel/mail.h"
#include "parallel/ranks.h"

namespace lockstep {

std::vector<std::string> transport_names();  // threads, mpi
// "threads": nothing happens. Errors: those of load_mpi_wire; invalid_argument for "mpi" in a process that mpirun did not start.
void join_processes(const std::string& transport);
// Null: this process is alone.
ProcessMail* joined_mail();
// Threads of this process, or of the joined ones.
std::unique_ptr<Ranks> make_ranks(const RankLayout& layout);

}  // namespace lockstep
