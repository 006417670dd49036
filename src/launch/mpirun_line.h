// The command line that starts a run's processes over Open MPI, as words: no shell reads it.
//   mpirun_line({.mpirun = "mpirun", .program = {"/opt/lockstep", "train", "sft", ...}}, hosts, {.ranks = layout, .processes = 3}, false)
// Plain values.
#pragma once
#include <string>
#include <vector>

#include "launch/hosts.h"
#include "parallel/layout.h"

namespace lockstep {

struct LaunchProgram {
  std::string mpirun = "mpirun";
  std::string agent = {};                 // the remote shell that mpirun starts processes with, its words with blanks between; empty: Open MPI's own, ssh
  std::vector<std::string> options = {};  // more of mpirun's words
  std::vector<std::string> program = {};  // the program and its arguments
};

// Which ranks on how many processes, the first slots of the hosts.
struct LaunchLayout {
  RankLayout ranks;
  int processes = 1;
  std::string why = {};  // for people
};

// The hosts with the slots that so many processes take, in order.
std::vector<Host> hosts_taken(const std::vector<Host>& hosts, int processes);
// `start`: its number, which the processes are told.
std::vector<std::string> mpirun_line(const LaunchProgram& program, const std::vector<Host>& hosts, const LaunchLayout& layout, bool resume, int start = 1);
// Asks a host: a command that ends well where it answers. Empty: this machine, which is not asked.
std::vector<std::string> asking_line(const LaunchProgram& program, const std::string& host);
// As a person would type it in a shell.
std::string shell_text(const std::vector<std::string>& words);

}  // namespace lockstep
